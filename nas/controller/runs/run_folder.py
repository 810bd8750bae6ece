"""A run's folder: who owns it, and its files, each written whole or not at all."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nas.controller.config import SearchConfig
from nas.errors import UserError
from nas.files.folders import LOCK, check_writable, locked
from nas.files.writing import staged_file, write_json
from nas.networks.run_networks import TARGET
from search_spaces.reference import SPACE_FILE

ANOTHER_FOLDER = "give another --out, or remove it"
"""Hint where a folder holds another run."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths inside one run's folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def space(self) -> Path:
        """The table of the searched space, where that was given as a file."""
        return self.path / SPACE_FILE

    @property
    def study(self) -> Path:
        return self.path / "study.db"

    @property
    def server(self) -> Path:
        """Exists where the studies are not in `study` but in a database: names it, without a password."""
        return self.path / "storage.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def candidates(self) -> Path:
        return self.path / "candidates.parquet"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def account(self) -> Path:
        """Seconds by stage."""
        return self.path / "account.json"

    @property
    def target(self) -> Path:
        """Record of the target, see `nas.controller.prediction.target_record`."""
        return self.path / TARGET

    @property
    def reused(self) -> Path:
        """Exists where another run's evaluations were taken over: the question they were taken over for, see
        `nas.controller.runs.question`."""
        return self.path / "reused.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def estimator(self) -> Path:
        """Record of the chosen estimator, see `nas.controller.planning.estimator_choice`."""
        return self.path / "estimator.json"

    @property
    def supernet(self) -> Path:
        """The supernet's weights, where there is one; its training goes on from them."""
        return self.path / "supernet.safetensors"

    @property
    def final_plan(self) -> Path:
        """Exists from when the last round was begun."""
        return self.path / "final.json"

    @property
    def finalists(self) -> Path:
        """Everything that was trained and deployed in last rounds, see `nas.controller.runs.records`."""
        return self.path / "finalists"

    @property
    def evaluations(self) -> Path:
        """The workers' files, and outcomes that no study has recorded yet, see `nas.executors.journal`."""
        return self.path / "evaluations"

    @property
    def short_weights(self) -> Path:
        """Weights of the best short trainings, see `nas.controller.runs.short_weights`."""
        return self.path / "short-weights"

    def winner(self, rank: int) -> Path:
        return self.path / "winners" / str(rank)

    def baseline(self, name: str) -> Path:
        return self.path / "baselines" / name

    def forget_winners(self, after: int) -> None:
        """Remove winners of lower rank, which an earlier, interrupted end of the run has left."""
        for folder in (self.path / "winners").glob("*"):
            if not folder.name.isdigit() or int(folder.name) > after:
                shutil.rmtree(folder)


def network_name(key: str) -> str:
    """Name of the files about the network with this key: keys are long, so the end is a checksum."""
    return f"{key.split(':')[0]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def check_folder(config: SearchConfig, hint: str = ANOTHER_FOLDER) -> RunFolder:
    """The run's folder, if it can be used by this configuration. Writes nothing.

    Raises `UserError` where it holds another configuration (then with `hint`) or other files, or cannot be written.
    """
    folder = RunFolder(config.run_dir)
    check_identity(folder, config.identity(), default_settings(SearchConfig), hint)
    if folder.config.exists():
        _check_storage(config, folder)
    return folder


def default_settings(config: type[Any]) -> dict[str, Any]:
    """The defaults of a configuration's fields, of those that have one."""
    return {f.name: f.default for f in fields(config) if f.default is not MISSING}


def check_identity(
    folder: RunFolder,
    identity: dict[str, Any],
    defaults: Mapping[str, Any] = MappingProxyType({}),
    hint: str = ANOTHER_FOLDER,
) -> None:
    """Raises `UserError` where the folder holds a run with another identity (then with `hint`) or other files, or
    cannot be written.

    A setting that is younger than the run had its value in `defaults` then.
    """
    if folder.path.exists() and not folder.path.is_dir():
        raise UserError(f"--out {folder.path} is a file", "name a folder")
    if folder.config.exists():
        recorded, now = json.loads(folder.config.read_text()), _plain(identity)
        younger = {name: defaults[name] for name in now.keys() - recorded.keys() if name in defaults}
        differing = _differences({**_plain(younger), **recorded}, now)
        if differing:
            raise UserError(f"{folder.path} holds a run with another configuration ({differing})", hint)
    elif folder.path.is_dir() and any(file.name != LOCK for file in folder.path.iterdir()):
        raise UserError(f"{folder.path} is not empty and no run of this program", "give another --out")
    check_writable(folder.path)


def _check_storage(config: SearchConfig, folder: RunFolder) -> None:
    """A run that forgot where its studies are would begin again from nothing."""
    if config.storage is None and folder.server.exists():
        where = json.loads(folder.server.read_text())["where"]
        raise UserError(f"the studies of {folder.path} lie in {where}", "give its URL with --storage")
    if config.storage is not None and folder.study.exists():
        raise UserError(f"the studies of {folder.path} lie in its own study.db", "leave out --storage")


@contextmanager
def opened(config: SearchConfig, folder: RunFolder) -> Iterator[None]:
    """Create the folder and record its configuration; nobody else works in it while the block lasts."""
    table = {} if config.space_document is None else {folder.space: json.loads(config.space_document)}
    with held(folder, config.identity(), table):
        yield


@contextmanager
def held(
    folder: RunFolder, identity: dict[str, Any], before: Mapping[Path, Any] = MappingProxyType({})
) -> Iterator[None]:
    """Create the folder with its `config.json`, which is written after the documents in `before`.

    The lock comes first: where another process works on the folder, nothing of it is changed. Raises `UserError` then,
    and where it cannot be written.
    """
    with ExitStack() as stack:
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.path))
            for path, document in before.items():
                write_json(path, document)
            write_json(folder.config, _plain(identity))
        except OSError as error:
            raise UserError(
                f"{folder.path} cannot be written to: {error.strerror}", "give an --out you may write to"
            ) from error
        yield


def write_candidates(folder: RunFolder, rows: Sequence[dict[str, Any]]) -> None:
    """The table of all candidates, one row each."""
    import pandas as pd

    with staged_file(folder.candidates) as staged:
        pd.DataFrame(list(rows)).to_parquet(staged, index=False)


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it reads back from JSON (tuples become lists)."""
    plain: dict[str, Any] = json.loads(json.dumps(document))
    return plain


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    changed = []
    for name in new.keys() | old.keys():
        before, now = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            changed += [part for part in (_differences(before, now),) if part]
        elif before != now:
            changed.append(f"{name} was {before!r}, is {now!r}")
    return ", ".join(sorted(changed))
