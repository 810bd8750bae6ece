"""A run's folder: who owns it, and its files, each written whole or not at all."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.controller.config import SearchConfig
from nas.errors import UserError
from nas.export.checkpoint import write_json


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths inside one run's folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def study(self) -> Path:
        return self.path / "study.db"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def candidates(self) -> Path:
        return self.path / "candidates.parquet"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def winner(self, rank: int) -> Path:
        return self.path / "winners" / str(rank)

    def work(self, name: str) -> Path:
        return self.path / "work" / name


def check_folder(config: SearchConfig) -> RunFolder:
    """The run's folder, if it can be used by this configuration. Writes nothing.

    Raises `UserError` where it holds another configuration or other files, or cannot be written.
    """
    folder = RunFolder(config.run_dir)
    if folder.path.exists() and not folder.path.is_dir():
        raise UserError(f"--out {folder.path} is a file", "name a folder")
    if folder.config.exists():
        differing = _differences(json.loads(folder.config.read_text()), _plain(config.identity()))
        if differing:
            raise UserError(
                f"{folder.path} holds a run with another configuration ({differing})",
                "give another --out, or remove it",
            )
    elif folder.path.is_dir() and any(folder.path.iterdir()):
        raise UserError(f"{folder.path} is not empty and no run of this program", "give another --out")
    existing = next(p for p in (folder.path, *folder.path.absolute().parents) if p.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{existing} cannot be written to", "give an --out you may write to")
    return folder


def open_folder(config: SearchConfig, folder: RunFolder) -> None:
    """Create the folder and record its configuration."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.config, _plain(config.identity()))
    except OSError as error:
        raise UserError(
            f"{folder.path} cannot be written to: {error.strerror}", "give an --out you may write to"
        ) from error


def write_candidates(folder: RunFolder, rows: Sequence[dict[str, Any]]) -> None:
    """The table of all candidates, one row each."""
    import pandas as pd

    partial = folder.candidates.with_name(folder.candidates.name + ".partial")
    pd.DataFrame(list(rows)).to_parquet(partial, index=False)
    os.replace(partial, folder.candidates)


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """As it reads back from JSON (tuples become lists)."""
    plain: dict[str, Any] = json.loads(json.dumps(document))
    return plain


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    changed = [k for k in new if old.get(k) != new[k]]
    return ", ".join(f"{k} was {old.get(k)!r}, is {new[k]!r}" for k in changed)
