"""The one training loop: short trainings of candidates, finalists and `nas finetune` run it, each as its recipe says.

Each thing a recipe asks for has one place: the order of batches and what is drawn (`batches`), the optimiser
(`optimizer`), its rate (`schedule`), averages of weights (`average`), the time limit (`clock`), precision and memory
layout (`setup`), a teacher (`distill`), and everything that depends on the task (`objective`).
"""

import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nas.errors import UserError
from nas.files.tensors import Tensors
from nas.training.average import EpochAverage, MovingAverage
from nas.training.batch_norm import set_norm_momentum
from nas.training.batches import Ahead, Batches, StreamedBatches, seed_step
from nas.training.clock import Clock
from nas.training.distill import Answers, Learner, Teacher, distilled
from nas.training.objective import Objective, Validation, has_diverged
from nas.training.optimizer import clip_gradients, make_optimizer, set_rate
from nas.training.precision import autocast, resolve_device
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback, EpochRecord, Stopped, TrainResult, Validates
from nas.training.schedule import learning_rate
from nas.training.setup import Setup, choose_setup, laid_out
from nas.training.world import World

NOT_VALIDATED = Validation(math.nan)


def train(
    network: nn.Module,
    objective: Objective,
    recipe: Recipe,
    *,
    callback: EpochCallback | None = None,
    device: torch.device | str = "auto",
    teacher: Teacher | None = None,
    validates: Validates = "each",
) -> TrainResult:
    """Train `network` in place and validate it after each epoch, or after the last alone; nothing is written.

    The network ends in evaluation mode, on the device it came from, with averaged weights where the recipe has an
    average. With the same network, data, recipe, number of threads and explicit precision, the result on a CPU is the
    same in every process, unless the recipe's time limit cuts in. torch's global random state is left as it was.

    A loss that is not finite, or absurdly high, ends training with `stopped="diverged"` instead of an exception. The
    time limit ends it within one step, with time for the last validation reserved (the one exception: a limit too short
    even for that validation).

    Args:
        network: is trained.
        objective: of the task, on `device`.
        recipe: says everything else.
        callback: gets each finished epoch, and may end the training.
        device: that trains; `auto` is the GPU where there is one.
        teacher: of the recipe's distillation, on that device.
    """
    origin = next(network.parameters()).device
    world = World(0, 1, resolve_device(str(device)))
    training = Training(network, objective, recipe, world=world, teacher=teacher, validates=validates)
    try:
        result = training.run(callback)
        if training.network is not network:
            network.load_state_dict(training.network.state_dict())
    finally:
        network.eval().to(origin)
    return result


class Training:
    """One training of one network, from its first step or from a state (`nas.training.state.restore`).

    Args:
        network: is trained in place, on the world's device.
        objective: of the task, on that device.
        recipe: says everything else.
        world: the processes that train together.
        setup: what the recipe leaves to the machine; None: measured here.
        teacher: of the recipe's distillation.
        validates: after which epochs; ignored where the recipe's patience has to see each of them.

    Raises:
        UserError: the recipe asks several processes for what one alone can do.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        recipe: Recipe,
        *,
        world: World,
        setup: Setup | None = None,
        teacher: Teacher | None = None,
        validates: Validates = "each",
    ) -> None:
        _require_possible(recipe, world)
        self.clock = Clock(recipe.time_limit_s, objective.val_examples)
        self.objective, self.recipe, self.world, self.teacher = objective, recipe, world, teacher
        self.setup = setup = setup or choose_setup(
            recipe, network, objective.input, objective.train_examples, world.device
        )
        with torch.random.fork_rng():
            seed_step(recipe.seed)  # the learner may have a random part of its own
            self.learner = Learner(network, teacher, recipe.distillation)
        self.learner.to(world.device).to(memory_format=setup.memory_format)
        if recipe.norm_momentum is not None:
            set_norm_momentum(self.learner, recipe.norm_momentum)
        self.batches = _batches(objective.train_examples, setup.batch_size // setup.passes, recipe, world)
        whole, reference = setup.batch_size * recipe.accumulate_steps, recipe.optimizer.lr_batch_size
        self.peak_lr = recipe.optimizer.lr * (whole / reference if reference is not None else 1.0)
        self._group = recipe.accumulate_steps * setup.passes
        self.steps_per_epoch = math.ceil(self.batches.per_epoch / self._group)
        self.parameters = list(self.learner.parameters())
        fp16 = setup.precision == "fp16"
        self.optimizer = make_optimizer(
            self.learner, recipe.optimizer, self.peak_lr, precision=setup.precision, may_skip_steps=fp16
        )
        # Does nothing unless the gradients are in fp16, where small ones would be lost.
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=fp16)
        self.average = MovingAverage(network, recipe.ema_decay, recipe.ema_rise) if recipe.ema_decay else None
        self.last_epochs = EpochAverage()
        self._validates_each = validates == "each" or recipe.early_stopping.patience_epochs is not None
        self.curve: list[EpochRecord] = []
        self.random_state: Tensors = {}
        """State that `run` goes on from, as `Batches.random_state` gave it; empty: the beginning."""
        self._guessing_loss: float | None = None
        self._parallel: Callable[[torch.Tensor], Any] = (
            DistributedDataParallel(self.learner) if world.size > 1 else self.learner
        )

    @property
    def network(self) -> nn.Module:
        """The network that is validated and delivered: the average where there is one."""
        return self.average.module if self.average is not None else self.learner.network

    @property
    def best_epoch(self) -> int:
        """The first of those with the best accuracy on the validation examples, from 1; 0 before there is one."""
        return self._accuracies.index(max(self._accuracies)) + 1 if self.curve else 0

    @property
    def lacks_gain(self) -> bool:
        """True if the recipe's patience with epochs that bring no gain is at its end."""
        settings = self.recipe.early_stopping
        patience = settings.patience_epochs
        return patience is not None and epochs_without_gain(self._accuracies, settings.min_gain) >= patience

    @property
    def _accuracies(self) -> list[float]:
        return [record.val_accuracy for record in self.curve]

    def run(
        self, on_epoch: EpochCallback | None = None, keep: Callable[["Training"], None] | None = None
    ) -> TrainResult:
        """Train to the end, from the epoch behind `curve`.

        Args:
            on_epoch: gets each finished epoch; True ends the training. Asked in the first process alone.
            keep: called after each finished epoch, before `on_epoch`, to save what is needed to go on.
        """
        epochs = self.recipe.epochs
        stopped: Stopped | None = None
        found = Validation(self.curve[-1].val_accuracy if self.curve else 0.0)
        with torch.random.fork_rng():
            self.batches.start()
            if self.random_state:
                self.batches.restore(self.random_state)
            while len(self.curve) < epochs and stopped is None:
                if self.lacks_gain:
                    stopped = "no gain"
                    break
                started = time.perf_counter()
                found, stopped = self._epoch(len(self.curve) + 1, started)
                if stopped is not None:
                    break
                if keep is not None:
                    keep(self)
                wants_end = on_epoch is not None and self.world.is_first and bool(on_epoch(self.curve[-1]))
                if self.world.agree(wants_end) and len(self.curve) < epochs:
                    stopped = "pruned by callback"
        self.learner.eval()
        return TrainResult(
            found.accuracy, tuple(self.curve), self.clock.elapsed_s, stopped, self.setup.precision, found.details
        )

    def _epoch(self, epoch: int, started: float) -> tuple[Validation, Stopped | None]:
        """Train and validate; a record is added where the epoch comes to its end."""
        steps = _Steps()
        stopped = self._train_epoch(epoch, steps)
        if stopped == "diverged":
            return Validation(0.0), stopped
        trained_s = time.perf_counter() - started
        is_last = epoch == self.recipe.epochs or stopped is not None
        found = self._validated() if self._validates_each or is_last else NOT_VALIDATED
        if stopped is not None:
            return found, stopped
        if epoch > self.recipe.epochs - self.recipe.checkpoints.average_epochs:
            self.last_epochs.add(self.network.state_dict())
        self.curve.append(
            EpochRecord(
                epoch=epoch,
                lr=steps.lr,
                train_loss=float(torch.stack(steps.losses).mean()),
                val_accuracy=found.accuracy,
                examples_per_s=steps.examples * self.world.size / trained_s,
                data_wait_share=steps.waited_s / trained_s,
                seconds=time.perf_counter() - started,
            )
        )
        return found, None

    def _validated(self) -> Validation:
        before, first = time.perf_counter(), self.world.is_first
        found = self.world.agree(self.objective.validate(self.network, self.setup.precision) if first else None)
        assert found is not None
        self.clock.validated(time.perf_counter() - before)
        return found

    def _train_epoch(self, epoch: int, done: "_Steps") -> Stopped | None:
        """The steps of one epoch, told to `done`; the reason why they ended early, if they did."""
        self.learner.train()
        count, group = self.batches.per_epoch, self._group
        with Ahead(self._prepared(epoch), count) as coming:
            for index in range(count):
                if self.clock.is_out:
                    return "time limit"
                start = time.perf_counter()
                inputs, targets, batch = coming.take()
                waited_s = time.perf_counter() - start
                in_group = min(group, count - index // group * group)
                loss = self._loss(inputs, targets, batch)
                # Not before: dropout in the forward pass draws from the same global random state as augmentation, and
                # nothing behind it does. So all is drawn in the order in which it would be without a thread.
                coming.prepare()
                if index % group == 0:
                    # Here rather than behind the step: a forward pass into memory that gradients have just left makes
                    # the backward pass fetch new memory, which on a CPU costs a small network some per cent.
                    self.optimizer.zero_grad(set_to_none=True)
                self.scaler.scale(loss if in_group == 1 else loss / in_group).backward()  # type: ignore[no-untyped-call]
                if (index + 1) % group == 0 or index + 1 == count:
                    done.lr = self._update((epoch - 1) * self.steps_per_epoch + index // group)
                done.add(loss.detach(), len(inputs), waited_s)
                # One step late: reading the newest loss would make a GPU wait.
                if len(done.losses) > 1 and self._diverged(done.losses[-2]):
                    return "diverged"
                self.clock.stepped(time.perf_counter() - start, len(inputs))
        return "diverged" if self._diverged(done.losses[-1]) else None

    def _prepared(self, epoch: int) -> Iterator[tuple[torch.Tensor, Any, Hashable]]:
        """The augmented inputs of each batch, laid out, with their targets, and what tells the batch apart from others
        where it comes again (`DistillationSettings.views`); None: it does not."""
        steps, views = self.recipe.epochs * self.batches.per_epoch, self.recipe.distillation.views
        drawn = (epoch - 1) % views + 1 if views else epoch
        for index, (indices, generator) in enumerate(self.batches.epoch(drawn)):
            share = ((epoch - 1) * self.batches.per_epoch + index + 0.5) / steps
            # What comes again has to be the same whenever that is.
            progress = 0.0 if views else self.clock.progress(share)
            inputs, targets = self.objective.batch(indices, generator, progress)
            batch = (self.recipe.seed, self.batches.per_epoch, drawn, index) if views else None
            yield laid_out(inputs, self.setup), targets, batch

    def _loss(self, inputs: torch.Tensor, targets: Any, batch: Hashable = None) -> torch.Tensor:
        """Of a batch, see `_prepared`."""
        taught: Answers | None = None
        with autocast(self.world.device, self.setup.precision):
            outputs, features = self._parallel(inputs)
            if self.teacher is not None:
                taught = self.teacher(inputs, features=features is not None, batch=batch)
        loss = self.objective.loss(outputs, targets)
        if taught is None:
            return loss
        apart = self.objective.distillation_loss(outputs, taught[0])
        return distilled(loss, apart, features, taught[1], self.recipe.distillation)

    def _update(self, step: int) -> float:
        """Optimiser step number `step`, from 0; returns its rate."""
        share = (step + 0.5) / (self.recipe.epochs * self.steps_per_epoch)
        rate = learning_rate(self.recipe.schedule, self.peak_lr, self.clock.progress(share), self.recipe.epochs)
        set_rate(self.optimizer, rate)
        if self.recipe.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip_gradients(self.parameters, self.recipe.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update(step + 1)
        return rate

    def _diverged(self, loss: torch.Tensor) -> bool:
        value = float(loss)
        if self._guessing_loss is None:
            self._guessing_loss = self.objective.guessing_loss(value)
        return has_diverged(value, self._guessing_loss)


class _Steps:
    """Figures of an epoch's steps so far."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []
        self.lr = 0.0
        self.examples = 0
        self.waited_s = 0.0

    def add(self, loss: torch.Tensor, examples: int, waited_s: float) -> None:
        self.losses.append(loss)
        self.examples += examples
        self.waited_s += waited_s


def epochs_without_gain(accuracies: Sequence[float], min_gain: float) -> int:
    """Number of epochs since the accuracy last grew by more than `min_gain` over the last one that had."""
    best, last = -math.inf, 0
    for epoch, accuracy in enumerate(accuracies, start=1):
        if accuracy > best + min_gain:
            best, last = accuracy, epoch
    return len(accuracies) - last


def _batches(count: int, batch_size: int, recipe: Recipe, world: World) -> Batches:
    if recipe.draws == "stream":
        return StreamedBatches(count, batch_size, recipe.seed)
    return Batches(count, batch_size, recipe.seed, world.rank, world.size)


def _require_possible(recipe: Recipe, world: World) -> None:
    if world.size == 1:
        return
    if recipe.draws == "stream":
        raise UserError("draws = stream is for one process", "set draws=step, or train without torchrun")
    if recipe.time_limit_s is not None:
        raise UserError("a time limit (time_limit_s) is for one process", "leave it out, or train without torchrun")
