"""One mutation by its number: made, read, and judged."""

import shutil
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.fuzzing.readers import READERS, mutate
from experiments.fuzzing.sandbox import watched
from nas.errors import UserError

SLOW_S = 30.0
"""Seconds after which a reader counts as hanging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one mutation."""

    number: int
    reader: str
    changed: str
    """What was changed."""
    answer: str
    """`read`, `refused`, or the kind of a defect: `traceback`, `slow`, `outside`."""
    seconds: float
    detail: str = ""

    @property
    def is_defect(self) -> bool:
        return self.answer not in ("read", "refused")


class Trials:
    """Mutations of the kinds `names`, in a folder of their own; the same seed and number make the same file."""

    def __init__(self, folder: Path, seed: int, names: Sequence[str] = tuple(READERS)) -> None:
        self.folder, self.seed, self.names = folder, seed, tuple(names)
        weights = np.array([READERS[name].weight for name in self.names], float)
        self._shares = weights / weights.sum()

    def reader_of(self, number: int) -> str:
        """The kind of file that mutation `number` is of."""
        return str(np.random.default_rng([self.seed, number]).choice(np.array(self.names), p=self._shares))

    def run(self, number: int) -> Finding:
        """Make mutation `number`, read it, and say what happened."""
        rng, name = np.random.default_rng([self.seed, number, 1]), self.reader_of(number)
        reader = READERS[name]
        work = self.folder / "outer" / "inner" / "work"
        shutil.rmtree(self.folder / "outer", ignore_errors=True)
        shutil.copytree(self._samples(name), work)
        changed = mutate(reader, work, rng)
        before = _listing(self.folder / "outer", without=work)
        start, answer, detail = time.perf_counter(), "read", ""
        with watched(self.folder) as events, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                reader.read(work, rng)
            except UserError as error:
                answer = "refused" if str(error) and "\n" not in str(error) else "traceback"
                detail = str(error)
            except BaseException:  # noqa: BLE001 (any other kind is what is looked for)
                answer, detail = "traceback", traceback.format_exc()
        seconds = time.perf_counter() - start
        new = sorted(_listing(self.folder / "outer", without=work) - before)
        if events or new:
            answer, detail = "outside", "; ".join([*events, *new])
        elif seconds > SLOW_S and answer in ("read", "refused"):
            answer, detail = "slow", f"{seconds:.0f} s"
        return Finding(number=number, reader=name, changed=changed, answer=answer, seconds=seconds, detail=detail)

    def _samples(self, name: str) -> Path:
        """The sound samples of a kind, made once."""
        place = self.folder / "samples" / name
        if not place.exists():
            staged = place.with_name(f"{name}.partial")
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            READERS[name].build(staged)
            staged.rename(place)
        return place


def _listing(folder: Path, without: Path) -> set[str]:
    """Everything around the folder `without`, which the readers may change as they like."""
    return {str(path) for path in folder.rglob("*") if path != without and without not in path.parents}
