"""Candidates that are trained in the process of the search."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import nas.controller.engine as search_engine
import nas.executors.training as short_trainings
from nas.executors.base import Evaluation, Finished
from nas.executors.journal import Journal


class InProcess:
    """An executor that trains in this process, one candidate at a time."""

    capacity = 1

    def __init__(self, data: Any, folder: Path) -> None:
        self.data, self.journal = data, Journal(folder / "outcomes")
        self.submitted: list[Evaluation] = []

    def submit(self, task: Evaluation) -> None:
        self.submitted.append(task)

    def wait(self) -> list[Finished]:
        done = [Finished(task, short_trainings.train_briefly(task, self.data)) for task in self.submitted]
        self.submitted = []
        return done

    def abandon(self) -> None:
        self.submitted = []

    def rest(self) -> None:
        pass

    def quiet(self) -> Any:
        return nullcontext()


def train_here(patch: pytest.MonkeyPatch) -> None:
    """Searches start no worker, each of which would import torch for seconds before it trains."""

    @contextmanager
    def executor_for(data: Any, folder: Path, **_: Any) -> Iterator[InProcess]:
        yield InProcess(data, folder)

    patch.setattr(search_engine, "executor_for", executor_for)
