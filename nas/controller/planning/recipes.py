"""Recipes that a search trains its candidates with: derived from budget, data and candidate alone, so that it
repeats."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nas.controller.config import SearchConfig
from nas.controller.planning.plan import (
    FEWEST_S,
    SHORT_TRAININGS,
    affordable_image_s,
    deployment_s,
    planned_s,
    schedule,
    short_training,
)
from nas.controller.planning.throughput import (
    FRESH_S,
    TrainingThroughput,
    host_throughput,
    largest_input,
    with_teacher,
)
from nas.controller.values import Evaluated
from nas.deployment import CPU
from nas.evaluation.short_training import ShortTraining, enough_to_compare
from nas.measure.site import Run, call_here
from nas.networks.description import NetworkDescription
from nas.tasks import TaskData, task_of
from nas.training.recipe import Recipe
from search_spaces import Architecture, Choices, SearchSpace

OVERHEAD = 1.25
"""A training's time by that of its steps: a quarter for validation and augmentation."""
LONGEST_SHORT = 2.0
"""Time limit of a short training by the time that is planned for it: a host that is much slower than it was when its
throughput was measured must not spend the budget on one candidate."""
CHEAPEST_SHARE = 0.05
"""Share of the space that is never left out for its training cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipes:
    """The trainings of one search."""

    config: SearchConfig
    space: SearchSpace
    data: TaskData
    base: Recipe
    throughput: TrainingThroughput

    @property
    def planned_s(self) -> float:
        """The budget that trainings are planned for; where trials alone end the search, a usual one."""
        return planned_s(self.config.seconds)

    @property
    def deploy_s(self) -> float:
        """Seconds that each deployment of a finalist takes."""
        limit = self.config.limits.latency
        return deployment_s(
            self.config.interval_ms, self.config.limits.least_calls, 0.0 if limit is None else limit.value
        )

    @property
    def short_s(self) -> float:
        """Seconds planned for each short training."""
        whole = schedule(0.0, self.planned_s, baselines=self.config.baselines)
        return whole.search_short_until_s / SHORT_TRAININGS

    def short(self, arch: Architecture) -> ShortTraining:
        """The short training that a candidate gets."""
        images, shape = len(self.data.train), task_of(self.data).shape
        ends = math.isfinite(self.config.seconds)
        base = self.base.changed(time_limit_s=max(FEWEST_S, LONGEST_SHORT * self.short_s)) if ends else self.base
        short = short_training(base, images, lambda batch: self.image_s(arch, batch), self.short_s, shape)
        return replace(short, validate_every=enough_to_compare(self.data))

    def short_batch(self, arch: Architecture) -> int:
        """Images in a batch of the candidate's short training."""
        short = self.short(arch)
        return short.recipe.batch_for(short.train_images or len(self.data.train))

    def image_s(self, arch: Architecture, batch: int | None = None) -> float:
        """Expected seconds to train on one image, at the throughput of the device that trains.

        In batches of `batch` images; None: in those of a full training.
        """
        return float(self._image_s(self.space.choices([arch]), batch)[0])

    def epochs(self, choices: Choices, deployments: int) -> NDArray[np.float64]:
        """Expected epochs (n,) of the full training of each network (n, decisions), tried in so many deployments."""
        whole_s = task_of(self.data).shape.final_epochs[0] * self._affordable_image_s(deployments)
        found: NDArray[np.float64] = whole_s / (OVERHEAD * self._image_s(choices))
        return found

    def full_image_s(self, candidate: Evaluated) -> float:
        """Seconds that a full training will take for one image, by those of the candidate's short one.

        Short trainings have smaller batches, whose updates are more of their time: this is taken off as the recorded
        throughput has it. Without a short training some steps are timed.
        """
        if candidate.seconds_per_image is None:
            return self.measured_image_s(candidate.arch)
        shape = task_of(self.data).shape
        enough = self.base.changed(epochs=min(shape.enough_epochs, shape.final_epochs[1]))
        batches = enough.batch_for(len(self.data.train)), self.short_batch(candidate.arch)
        whole, short = (self.image_s(candidate.arch, batch) for batch in batches)
        return candidate.seconds_per_image * min(1.0, whole / short)

    def measured_image_s(self, arch: Architecture) -> float:
        """Seconds to train on one image, from a few steps."""
        import torch

        from nas.training.precision import resolve_device
        from nas.training.setup import ENOUGH_S, Setup, step_seconds, update_seconds

        throughput = self.throughput
        setup = Setup(precision=throughput.precision, channels_last=True, batch_size=self._full_batch)
        described = NetworkDescription.of_architecture(self.space, arch, self.data.output_size)
        known = throughput.device == CPU or torch.cuda.is_available()  # else it is a GPU of another machine
        network, device = described.build(), resolve_device(throughput.device if known else CPU)
        seconds = step_seconds(network, described.signature.input, setup, device, enough_s=ENOUGH_S)
        seconds += update_seconds(network, self.base.optimizer, device, precision=setup.precision, enough_s=ENOUGH_S)
        return OVERHEAD * (seconds / self._full_batch + throughput.teacher_s)

    def affordable(self, deployments: int) -> tuple[Callable[[Choices], NDArray[np.bool_]], str | None]:
        """Test for candidates whose full training fits the budget (some always do), and a remark on the others."""
        limit = self._affordable_image_s(deployments)
        sampled = self._image_s(self.space.sample(2048, np.random.default_rng(self.config.seed)))
        limit = max(limit, float(np.quantile(sampled, CHEAPEST_SHARE)))
        left_out = float((sampled > limit).mean())
        ends = math.isfinite(self.config.seconds)
        budget = f"a budget of {self.planned_s:g} s" if ends else f"the {self.planned_s:g} s planned for trials"
        remark = (
            f"{left_out:.0%} of the space was left out: training one such network would take more than "
            f"{1000 * limit:.1f} ms per image, too long for {budget}"
        )
        return lambda choices: self._image_s(choices) <= limit, remark if left_out > 0.01 else None

    def _affordable_image_s(self, deployments: int) -> float:
        """`affordable_image_s` of the last round that is planned."""
        deadlines = schedule(0.0, self.planned_s, baselines=self.config.baselines)
        final_s = deadlines.search_until_s - deadlines.search_short_until_s
        return affordable_image_s(final_s, len(self.data.train), deployments, task_of(self.data).shape, self.deploy_s)

    def _image_s(self, choices: Choices, batch: int | None = None) -> NDArray[np.float64]:
        costs = self.space.costs(choices, self.data.output_size)
        return self.throughput.image_s(costs, batch or self._full_batch)

    @property
    def _full_batch(self) -> int:
        """Batch of the shortest full training, the smallest that a finalist may get."""
        fewest = task_of(self.data).shape.final_epochs[0]
        return self.base.changed(epochs=fewest).batch_for(len(self.data.train))


def make_recipes(
    config: SearchConfig,
    space: SearchSpace,
    data: TaskData,
    throughput: TrainingThroughput | None,
    run: Run = call_here,
) -> Recipes:
    """Recipes of a search, from `throughput` where it was recorded before, else from that of a machine that trains.

    `run` calls a function on such a machine.
    """
    base = task_of(data).recipe(seed=config.seed)
    fresh_s = FRESH_S if math.isfinite(config.seconds) else math.inf
    throughput = throughput or run(host_throughput, space, data.output_size, base, fresh_s=fresh_s)
    if config.teacher is not None and task_of(data).teaching is None:
        base = base.changed(distillation={"teacher": config.teacher})
        if not throughput.teacher_s:
            throughput = with_teacher(throughput, config.teacher, data, largest_input(space))
    base = base.changed(precision=throughput.precision)
    return Recipes(config=config, space=space, data=data, base=base, throughput=throughput)
