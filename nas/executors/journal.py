"""Outcomes that are known but may not have reached the study yet, as small files: nothing is trained twice.

Whoever sees an evaluation end first (a worker process, or the one that asks a cluster) writes its outcome, whole or not
at all; the search removes it when its study holds it. A search that was killed in between finds it here.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from nas.executors.base import Evaluation, Outcome
from nas.files.writing import write_whole


@dataclass(frozen=True, slots=True)
class Journal:
    """The outcomes in one folder, which is made when the first one is written."""

    folder: Path

    def write(self, task: Evaluation, outcome: Outcome) -> None:
        """Keep an outcome until `forget`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._weights(task).unlink(missing_ok=True)  # of whatever had this number before
        document = {"task": task.to_json(), "outcome": outcome.to_json()}
        write_whole(self._path(task), json.dumps(document).encode())
        if outcome.weights is not None:  # after it: they take longer, and a kill in between costs them alone
            write_whole(self._weights(task), outcome.weights)

    def find(self, task: Evaluation) -> Outcome | None:
        """The outcome of exactly this evaluation; None where there is none, or only one of another recipe or data."""
        try:
            document = json.loads(self._path(task).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if document["task"] != task.to_json():
            return None
        outcome = Outcome.from_json(document["outcome"])
        weights = self._weights(task)
        return replace(outcome, weights=weights.read_bytes()) if weights.exists() else outcome

    def forget(self, task: Evaluation) -> None:
        """The study holds this outcome now."""
        for path in (self._path(task), self._weights(task)):
            path.unlink(missing_ok=True)

    def _path(self, task: Evaluation) -> Path:
        return self.folder / f"{task.study}-{task.trial}.json"

    def _weights(self, task: Evaluation) -> Path:
        return self._path(task).with_suffix(".safetensors")
