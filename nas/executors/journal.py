"""Outcomes that are known but may not have reached the study yet, as small files: nothing is trained twice.

Whoever sees an evaluation end first (a worker process, or the one that asks a cluster) writes its outcome, whole or not
at all; the search removes it when its study holds it. A search that was killed in between finds it here.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from nas.executors.base import Evaluation, Outcome


@dataclass(frozen=True, slots=True)
class Journal:
    """The outcomes in one folder, which is made when the first one is written."""

    folder: Path

    def write(self, task: Evaluation, outcome: Outcome) -> None:
        """Keep an outcome until `forget`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(task)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps({"task": task.to_json(), "outcome": asdict(outcome)}), encoding="utf-8")
        os.replace(partial, path)

    def find(self, task: Evaluation) -> Outcome | None:
        """The outcome of exactly this evaluation; None where there is none, or only one of another recipe or data."""
        try:
            document = json.loads(self._path(task).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if document["task"] != task.to_json():
            return None
        outcome = document["outcome"]
        return Outcome(**{**outcome, "curve": tuple(outcome["curve"])})

    def forget(self, task: Evaluation) -> None:
        """The study holds this outcome now."""
        with suppress(FileNotFoundError):
            self._path(task).unlink()

    def _path(self, task: Evaluation) -> Path:
        return self.folder / f"{task.study}-{task.trial}.json"
