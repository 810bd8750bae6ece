"""A training in its folder, as `nas finetune` runs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nas.tasks import TASKS
from nas.tasks.examples import Examples
from nas.training.distill import Teacher
from nas.training.folder import train_in
from nas.training.loop import Training
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback, TrainResult
from nas.training.setup import Setup
from tests.nas.small_runs import ALONE


@dataclass(frozen=True)
class Kept:
    training: Training
    folder: Path

    def run(self, on_epoch: EpochCallback = lambda record: None) -> TrainResult:
        return train_in(self.folder, self.training, on_epoch)


def training_of(
    task: str, network: nn.Module, examples: Examples[Any], recipe: Recipe, setup: Setup | None,
    teacher: Teacher | None = None,
) -> Training:  # fmt: skip
    """On the CPU, in one process."""
    objective = TASKS[task].objective(network, examples, recipe, device=ALONE.device, teacher=teacher)
    return Training(network, objective, recipe, world=ALONE, setup=setup, teacher=teacher)
