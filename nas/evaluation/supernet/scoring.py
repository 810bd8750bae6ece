"""Accuracies of a trained supernet's paths."""

import time
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from nas.evaluation.supernet.config import Adaptation
from nas.evaluation.supernet.network import Supernet
from nas.tasks import TaskData, task_of
from nas.tasks.examples import Examples, examples_of
from nas.training.batch_norm import recalibrate_batch_norm
from nas.training.loop import train
from nas.training.objective import LOSS, Objective, random_inputs
from nas.training.precision import Precision, resolve_device
from search_spaces import Architecture


@dataclass(frozen=True, slots=True)
class PathScore:
    """Value of one path with the shared weights."""

    accuracy: float
    """Fraction of the validation images. Below that of a network trained alone; what counts is the order."""
    loss: float
    """Mean loss on the same images: it changes with every image, where accuracy counts few that flip."""
    seconds: float
    """Seconds by the clock, adaptation included."""
    core_seconds: float
    """Processor time of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathScorer:
    """Cuts paths out, trains them a little where asked to, measures their batch norms' statistics afresh, and validates
    them. The supernet's weights stay as they are, and a path's score depends on them, the data and the seed alone.
    """

    supernet: Supernet
    data: TaskData
    precision: Precision = "fp32"
    device: str = "auto"
    calibration_images: int = 512
    seed: int = 0
    """Seed of the choice of the calibration images, which are training images, and of the adaptation."""
    adaptation: Adaptation | None = None
    """None: the shared weights are scored as they are."""

    def calibrated(self, arch: Architecture) -> nn.Module:
        """The stand-alone network of a path, in evaluation mode, with batch-norm statistics of its own.

        Raises `RuntimeError` where its adaptation diverges.
        """
        network, _ = self._prepared(arch)
        return network

    def score(self, arch: Architecture) -> PathScore:
        start, core_start = time.perf_counter(), time.process_time()
        network, objective = self._prepared(arch)
        found = objective.validate(network, self.precision)
        seconds, core_seconds = time.perf_counter() - start, time.process_time() - core_start
        return PathScore(found.accuracy, found.details[LOSS], seconds, core_seconds)

    def _prepared(self, arch: Architecture) -> tuple[nn.Module, Objective]:
        """The path's calibrated network, and the objective for its input."""
        task, device = task_of(self.data), resolve_device(self.device)
        network = self.supernet.subnet(arch).to(device)
        examples = examples_of(self.data, self.supernet.space.input(arch))
        if self.adaptation is not None:
            self._adapt(network, examples, self.adaptation)
        objective = task.objective(network, examples, task.recipe(seed=self.seed), device=device)
        recalibrate_batch_norm(network, random_inputs(objective, self.calibration_images, seed=self.seed))
        return network, objective

    def _adapt(self, network: nn.Module, examples: Examples[Any], adaptation: Adaptation) -> None:
        """Train in place, on no more images than the steps can see, the same ones for every path."""
        task, split = task_of(self.data), examples.train
        batch = min(adaptation.batch_size, len(split))
        epochs = -(-adaptation.steps // (len(split) // batch))
        # one image to validate on: `score` validates
        few = replace(examples, train=split.some(adaptation.steps * batch // epochs, self.seed), val=split.some(1))
        recipe = task.recipe(
            epochs=epochs,
            batch_size=batch,
            least_steps=0,
            optimizer={"name": "sgd", "lr": adaptation.lr, "lr_batch_size": None},
            precision=self.precision,
            seed=self.seed,
        )
        device = resolve_device(self.device)
        result = train(network, task.objective(network, few, recipe, device=device), recipe, device=device)
        if result.stopped is not None:
            raise RuntimeError(f"the path's adaptation {result.stopped}")
