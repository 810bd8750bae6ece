"""Whether data are still those that a run was begun with, by the fingerprints of their examples.

A network that was trained on a split must never be judged on examples that it has seen, and a record of an accuracy is
of the examples that were there: so a run records what its splits held, and whatever goes on from it asks here first.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nas.data.images import SPLITS, SplitName
from nas.errors import UserError
from nas.files.writing import staged_file
from nas.tasks.task import TaskData

SPLITS_FILE = "splits.npz"
"""The file of a run with the fingerprints of its splits: `train`, `val` and `test`, each (n,) uint64."""

Fingerprints = Mapping[SplitName, NDArray[np.uint64]]


@dataclass(frozen=True, slots=True)
class Changes:
    """How many examples differ between two states of a data set; one that was labelled anew is removed and added."""

    added: int
    removed: int
    moved: int
    """Examples that are in another split than before."""

    @property
    def total(self) -> int:
        return self.added + self.removed + self.moved

    def __str__(self) -> str:
        parts = {"added": self.added, "removed": self.removed, "moved to another split": self.moved}
        return ", ".join(f"{count} {what}" for what, count in parts.items() if count)


def fingerprints_of(data: TaskData) -> dict[SplitName, NDArray[np.uint64]]:
    """The fingerprints of every split."""
    return {"train": data.train.fingerprints, "val": data.val.fingerprints, "test": data.test.fingerprints}


def changes(before: Fingerprints, now: Fingerprints) -> Changes:
    """What became of the examples, each counted as often as it occurs."""
    old = {split: Counter(before[split].tolist()) for split in SPLITS}
    new = {split: Counter(now[split].tolist()) for split in SPLITS}
    everything_old, everything_new = (sum(splits.values(), Counter[int]()) for splits in (old, new))
    added = (everything_new - everything_old).total()
    gained = sum((new[split] - old[split]).total() for split in SPLITS)
    return Changes(added=added, removed=(everything_old - everything_new).total(), moved=gained - added)


def record_splits(run: Path, data: TaskData) -> None:
    """Record what the splits hold in a run's folder, unless it is recorded already."""
    path = run / SPLITS_FILE
    if path.exists():
        return
    with staged_file(path) as staged, staged.open("wb") as file:
        found = fingerprints_of(data)
        np.savez(file, train=found["train"], val=found["val"], test=found["test"])


def require_same_data(run: Path, data: TaskData) -> None:
    """Raises `UserError` where the examples are not those that the run recorded; one without a record says nothing."""
    path = run / SPLITS_FILE
    if not path.exists():
        return
    found = changes(_read(path), fingerprints_of(data))
    if found.total:
        images = f"{found.total} image{'s' if found.total > 1 else ''}"
        raise UserError(
            f"the data {data.name!r} changed by {images} since the run '{run}' was begun ({found})",
            "restore them, or begin a new search: what the run trained and measured is not of these images",
        )


def _read(path: Path) -> Fingerprints:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {split: file[split].astype(np.uint64) for split in SPLITS}
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        RuntimeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise UserError(
            f"cannot read '{path}', the record of a run's data: {error}",
            "remove it where you know that the data are the same, or begin a new search",
        ) from error
