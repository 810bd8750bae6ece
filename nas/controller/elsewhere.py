"""Full trainings on the machines of a cluster, or the GPUs of this one: several at once, each where short ones run
too."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from nas.controller.runs.records import Before, Trained, keep_trained
from nas.evaluation.short_training import ShortTraining
from nas.executors import Evaluation, Executor, Failure, Finished, Outcome
from nas.networks.description import NetworkDescription
from nas.networks.weights import load_weights
from nas.training.recipe import Recipe

STUDY = "final"
"""In place of a study's name, in the journal and in messages."""
SPARE_S, SPARE = 120.0, 2.0
"""A full training hangs after so many seconds more, and times longer, than its limit."""


class FullExecutor(Executor, Protocol):
    """An executor that can be told when an evaluation hangs."""

    def submit(self, task: Evaluation, *, timeout_s: float | None = None) -> None:
        """Start an evaluation; `timeout_s`: after which it hangs, None: as usual."""
        ...


@dataclass(slots=True, kw_only=True)
class Elsewhere:
    """Full trainings that an executor does.

    Attributes:
        executor: does them; nothing else of it is under way meanwhile.
        data: name of the data set it was made with.
        say: is told of a training that did not come to its end there.
    """

    executor: FullExecutor
    data: str
    say: Callable[[str], None]
    _begun: dict[int, tuple[Path, Recipe, Before | None]] = field(default_factory=dict, init=False)
    _ended: set[int] = field(default_factory=set, init=False)

    def knows(self, folder: Path) -> bool:
        """True if the training whose record lies in `folder` was begun, or has ended."""
        return _number(folder) in self._begun

    def begin(
        self, folder: Path, description: NetworkDescription, recipe: Recipe, before: Before | None, limit_s: float
    ) -> None:
        """Train a network with `recipe`, for at most `limit_s` seconds where the recipe has a limit.

        What comes of it lies in `folder`, which is named after the network, see
        `nas.controller.runs.records.read_trained`.
        """
        timeout_s, limited = None, recipe
        if recipe.time_limit_s is not None:
            limit_s = min(limit_s, recipe.time_limit_s)
            timeout_s, limited = SPARE * limit_s + SPARE_S, recipe.changed(time_limit_s=limit_s)
        task = Evaluation(
            study=STUDY, trial=_number(folder), description=description, data=self.data, short=ShortTraining(limited)
        )
        self._begun[task.trial] = (folder, recipe, before)
        self.executor.submit(task, timeout_s=timeout_s)

    def finish(self, folder: Path) -> None:
        """Wait until the training for `folder` has ended; where there is no record of it, it did not end well."""
        while _number(folder) not in self._ended:
            found = self.executor.wait()
            for done in found:
                self._end(done)
            if not found:  # abandoned
                return

    def _end(self, done: Finished) -> None:
        self._ended.add(done.task.trial)
        folder, recipe, before = self._begun[done.task.trial]
        if isinstance(done.result, Failure) or done.result.weights is None:
            why = done.result.reason if isinstance(done.result, Failure) else "it came without weights"
            what = f"the full training of {folder.name} failed in a process of its own"
            self.say(f"{what}, and was done again in this one: {why}")
            return
        _keep(done.task.description, done.result, done.result.weights, folder, recipe, before)
        self.executor.journal.forget(done.task)


def _number(folder: Path) -> int:
    """A number for a network's evaluation, from its name."""
    return zlib.crc32(folder.name.encode()) >> 1


def _keep(
    description: NetworkDescription, outcome: Outcome, weights: bytes, folder: Path, recipe: Recipe,
    before: Before | None,
) -> None:  # fmt: skip
    network = description.build()
    with TemporaryDirectory(prefix="nas-full-") as temporary:
        file = Path(temporary) / "model.safetensors"
        file.write_bytes(weights)
        load_weights(network, file)
    trained = Trained(
        accuracy=outcome.accuracy, epochs=outcome.epochs, seconds=outcome.seconds, stopped=outcome.stopped
    )
    keep_trained(folder, description, recipe, network, trained, before)
