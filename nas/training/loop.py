"""The training loop: one for all tasks, and the lesson of classification."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import nn

from nas.data.images import ImageSplit, Preprocess
from nas.errors import UserError
from nas.tasks import classification
from nas.tasks.classification.evaluate import evaluate_accuracy
from nas.training.augment import augment
from nas.training.config import EpochLog, Precision, Stopped, TrainConfig, TrainResult
from nas.training.optim import WeightAverage, lr_factor, make_optimizer
from nas.training.precision import autocast, choose_precision, resolve_device
from search_spaces import TensorSpec

EpochCallback = Callable[[EpochLog], bool | None]
"""Gets each epoch's log; True stops the training (pruning)."""

_DIVERGED_FACTOR = 100
"""A loss of this many times that of guessing cannot come from a training that works."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What a network is worth."""

    accuracy: float
    """The task's metric, a fraction."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Other metrics by name."""


class Lesson(Protocol):
    """What a network is taught: the batches, the loss and the metric of one task, over splits that it holds."""

    @property
    def train_images(self) -> int:
        """How many images there are to learn from."""

    @property
    def val_images(self) -> int:
        """How many images validation looks at."""

    @property
    def input(self) -> TensorSpec:
        """What the network takes."""

    def loss(
        self, model: nn.Module, indices: torch.Tensor, generator: torch.Generator, progress: float, precision: Precision
    ) -> torch.Tensor:
        """Loss of the training images at `indices`, a float32 scalar with a gradient.

        Args:
            indices: (b,) int64.
            generator: of everything that is drawn.
            progress: share of the training that is done, in [0, 1].
        """

    def guessing_loss(self) -> float:
        """The loss of a network that knows nothing; asked for after the first batch."""

    def validate(self, model: nn.Module, precision: Precision) -> Validation:
        """Leaves the model in evaluation mode."""


def train(
    model: nn.Module,
    train_split: ImageSplit,
    val_split: ImageSplit,
    config: TrainConfig,
    *,
    preprocess: Preprocess,
    callback: EpochCallback | None = None,
    device: str = "auto",
) -> TrainResult:
    """Train a classifier in place and measure it on `val_split` after each epoch, as `teach` says.

    Both splits have the resolution to train at (`ImageData.at`).

    Raises:
        UserError: a split without images, or an augmentation that is of another task.
    """
    lesson = _Classification(train_split, val_split, config, preprocess, resolve_device(device))
    return teach(model, lesson, config, callback=callback, device=device)


def teach(
    model: nn.Module,
    lesson: Lesson,
    config: TrainConfig,
    *,
    callback: EpochCallback | None = None,
    device: str = "auto",
) -> TrainResult:
    """Train `model` in place and validate it after each epoch.

    The model ends in evaluation mode, on the device it came from, with averaged weights where `config.ema_decay` is
    set. With the same model, data, config, number of threads and explicit precision, the result on a CPU is the same
    in every process, unless `time_limit_s` cuts in. torch's global random state is left as it was.

    A loss that is not finite, or absurdly high, ends training with `stopped="diverged"` instead of an exception.
    `time_limit_s` ends it within one step, with time for the last validation reserved (the one exception: a limit
    too short even for that validation).

    Raises:
        UserError: too few images.
    """
    if lesson.train_images < 2 or lesson.val_images == 0:
        raise UserError(
            f"cannot train on {lesson.train_images} and validate on {lesson.val_images} images",
            "give at least 2 training images and 1 validation image",
        )
    origin = next(model.parameters()).device
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        run = _Run(model, lesson, config, resolve_device(device))
        try:
            return run.loop(callback)
        finally:
            model.to(origin)


class _Classification:
    """Batches of labelled images, cross-entropy, top-1 accuracy."""

    def __init__(
        self,
        train_split: ImageSplit,
        val_split: ImageSplit,
        config: TrainConfig,
        preprocess: Preprocess,
        device: torch.device,
    ) -> None:
        if config.augment == "mosaic":
            raise UserError("training setting augment = 'mosaic' is for detection", "classification has none and light")
        self.config, self.preprocess, self.device = config, preprocess, device
        self.val_split = val_split
        self.images = torch.from_numpy(train_split.images)
        self.labels = torch.from_numpy(train_split.labels)
        self.input = train_split.input
        self.train_images, self.val_images = len(train_split), len(val_split)
        self.classes = 1

    def loss(
        self, model: nn.Module, indices: torch.Tensor, generator: torch.Generator, progress: float, precision: Precision
    ) -> torch.Tensor:
        images, targets = self.images[indices].to(self.device), self.labels[indices].to(self.device)
        if self.config.augment == "light":
            images = augment(images, generator, flip=self.config.flip)
        with autocast(self.device, precision):
            logits = model(self.preprocess.tensor(images))
        self.classes = logits.shape[1]
        return classification.loss(logits, targets, self.config.label_smoothing)

    def guessing_loss(self) -> float:
        return float(np.log(self.classes))

    def validate(self, model: nn.Module, precision: Precision) -> Validation:
        return Validation(
            evaluate_accuracy(model, self.val_split, self.preprocess, device=str(self.device), precision=precision)
        )


class _Run:
    """The state of one call of `teach`."""

    def __init__(self, model: nn.Module, lesson: Lesson, config: TrainConfig, device: torch.device) -> None:
        self.started = time.perf_counter()
        self.config, self.lesson = config, lesson
        # Steps of nearly equal size instead of a small last one, which would disturb batch norm.
        n = lesson.train_images
        self.steps_per_epoch = max(1, min(round(n / config.batch_size), n // 2))
        self.model = model.to(device).to(memory_format=torch.channels_last)
        self.precision: Precision = (
            choose_precision(model, lesson.input, min(n, config.batch_size), device=str(device))
            if config.precision == "auto"
            else config.precision
        )
        self.optimizer = make_optimizer(model, config)
        self.average = WeightAverage(model, config.ema_decay) if config.ema_decay is not None else None
        self.generator = torch.Generator().manual_seed(config.seed)
        self.step_count = 0
        self.images_seen = 0
        self.train_seconds = 0.0
        self.longest_step_s = 0.0
        self.validation_s: float | None = None  # measured at the first validation

    def loop(self, callback: EpochCallback | None) -> TrainResult:
        curve: list[EpochLog] = []
        stopped: Stopped | None = None
        found = Validation(0.0)
        for epoch in range(1, self.config.epochs + 1):
            train_loss, stopped = self.train_epoch()
            if stopped == "diverged":
                found = Validation(0.0)
                break
            found = self.validate(final=stopped is not None or epoch == self.config.epochs)
            if stopped is not None:
                break
            log = EpochLog(epoch, train_loss, found.accuracy, self.elapsed())
            curve.append(log)
            wants_stop = callback(log) if callback is not None else None
            if wants_stop and epoch < self.config.epochs:
                stopped = "pruned by callback"
                self.use_average()
                break
        self.model.eval()
        return TrainResult(
            accuracy=found.accuracy,
            curve=tuple(curve),
            seconds=self.elapsed(),
            stopped=stopped,
            images_per_second=self.images_seen / self.train_seconds if self.train_seconds else 0.0,
            precision=self.precision,
            details=found.details,
        )

    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    def train_epoch(self) -> tuple[float, Stopped | None]:
        """Mean loss of the epoch's steps and why it stopped early, if it did."""
        self.model.train()
        order = torch.randperm(self.lesson.train_images, generator=self.generator)
        losses: list[torch.Tensor] = []
        for indices in order.tensor_split(self.steps_per_epoch):
            if self.out_of_time():
                return math.nan, "time limit"
            start = time.perf_counter()
            losses.append(self.step(indices))
            # One step late: reading the newest loss would make a GPU wait.
            if len(losses) > 1 and self.diverged(losses[-2]):
                return math.nan, "diverged"
            seconds = time.perf_counter() - start
            self.train_seconds += seconds
            self.longest_step_s = max(self.longest_step_s, seconds)
            self.images_seen += len(indices)
        if self.diverged(losses[-1]):
            return math.nan, "diverged"
        return float(torch.stack(losses).mean()), None

    def step(self, indices: torch.Tensor) -> torch.Tensor:
        """One optimiser step on the images at `indices`; the loss, detached."""
        config, progress = self.config, self.progress()
        factor = lr_factor(progress, config.warmup_fraction)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * factor
        loss = self.lesson.loss(self.model, indices, self.generator, progress, self.precision)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.step_count += 1
        return loss.detach()

    def progress(self) -> float:
        """Share done in [0, 1]: of the steps, or of the time limit where that ends first."""
        steps = (self.step_count + 0.5) / (self.config.epochs * self.steps_per_epoch)
        if self.config.time_limit_s is None:
            return steps
        return min(1.0, max(steps, (self.elapsed() + self.reserve_s()) / self.config.time_limit_s))

    def out_of_time(self) -> bool:
        limit = self.config.time_limit_s
        return limit is not None and self.elapsed() + self.longest_step_s + self.reserve_s() > limit

    def reserve_s(self) -> float:
        """Seconds that the last validation will take."""
        if self.validation_s is not None:
            return 1.1 * self.validation_s
        if not self.images_seen:
            return 0.0
        # A forward pass is about a third of a training step; a half leaves room.
        return 0.5 * self.lesson.val_images * self.train_seconds / self.images_seen

    def diverged(self, loss: torch.Tensor) -> bool:
        value = float(loss)
        return not math.isfinite(value) or value > _DIVERGED_FACTOR * max(1.0, self.lesson.guessing_loss())

    def use_average(self) -> None:
        if self.average is not None:
            self.average.swap()

    def validate(self, *, final: bool) -> Validation:
        """With averaged weights where there are any; the model keeps those if `final`."""
        start = time.perf_counter()
        self.use_average()
        found = self.lesson.validate(self.model, self.precision)
        if not final:
            self.use_average()
        self.validation_s = max(self.validation_s or 0.0, time.perf_counter() - start)
        return found
