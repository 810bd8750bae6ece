"""The training loop: everything it knows after an epoch lies in one file, from which it goes on to the same end."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from timm.optim._optim_factory import create_optimizer_v2
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors
from nas.finetune.images import Images
from nas.finetune.lessons import accuracy_of, lesson_of
from nas.training.average import MovingAverage
from nas.training.batches import Batches, seed_step
from nas.training.distill import Learner, Teacher, distilled
from nas.training.logs import EpochRecord, TensorBoardLog, write_csv
from nas.training.optim import clip_gradients
from nas.training.precision import autocast
from nas.training.recipe import Recipe
from nas.training.schedule import learning_rate
from nas.training.setup import Setup
from nas.training.state import (
    below,
    group_numbers,
    optimizer_tensors,
    prefixed,
    restore_optimizer,
)
from nas.training.world import World

STATE, BEST, LOG = "state.safetensors", "best.safetensors", "log.csv"
_FUSED = ("sgd", "momentum", "adam", "adamw")
"""What torch does in one pass over the weights instead of one per operation."""


class DivergedError(UserError):
    """The loss is no number any more."""


class Trainer:
    """One training of one network in its folder."""

    def __init__(
        self,
        network: nn.Module,
        images: Images,
        recipe: Recipe,
        setup: Setup,
        *,
        folder: Path,
        world: World,
        teacher: Teacher | None = None,
    ) -> None:
        self.images, self.recipe, self.setup, self.folder, self.world = images, recipe, setup, folder, world
        self.teacher = teacher
        with torch.random.fork_rng():
            seed_step(recipe.seed)  # the learner may have a random part of its own
            self.learner = Learner(network, teacher, recipe.distillation)
        self.learner.to(world.device).to(memory_format=setup.memory_format)
        self.batches = Batches(len(images.train), setup.batch_size, recipe.seed, world.rank, world.size)
        self.lesson = lesson_of(images, recipe, network, teacher, world.device)
        whole = setup.batch_size * recipe.accumulate_steps
        reference = recipe.optimizer.lr_batch_size
        self.peak_lr = recipe.optimizer.lr * (whole / reference if reference is not None else 1.0)
        self.steps_per_epoch = math.ceil(self.batches.per_epoch / recipe.accumulate_steps)
        self.parameters = list(self.learner.parameters())
        self.optimizer = _make_optimizer(self.learner, recipe, fused=setup.precision != "fp16")
        # Does nothing unless the gradients are in fp16, where small ones would be lost.
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=setup.precision == "fp16")
        self.average = MovingAverage(network, recipe.ema_decay) if recipe.ema_decay else None
        self.curve: list[EpochRecord] = []
        self.sums: dict[str, torch.Tensor] = {}
        self.summed = 0
        self.parallel: Callable[[torch.Tensor], Any] = (
            DistributedDataParallel(self.learner) if world.size > 1 else self.learner
        )

    @property
    def network(self) -> nn.Module:
        """What is validated and delivered: the average where there is one."""
        return cast(nn.Module, self.average.module) if self.average is not None else self.learner.network

    def run(self, on_epoch: Callable[[EpochRecord], None] = lambda record: None) -> None:
        """Train to the end, from where the folder's state says.

        Afterwards `network` has the last weights, `BEST` the best ones.

        Raises:
            DivergedError: the training diverges.
            UserError: the folder's state is damaged or of another training, or the disk is full.
        """
        with torch.random.fork_rng():
            seed_step(self.recipe.seed)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._resume()
            first = len(self.curve) + 1
            if self.stopped or first > self.recipe.epochs:
                return
            if not self.world.is_first:
                for epoch in range(first, self.recipe.epochs + 1):
                    if self._finish(self._train_epoch(epoch)):
                        return
                return
            with TensorBoardLog(self.folder / "tensorboard", first) as board:
                for epoch in range(first, self.recipe.epochs + 1):
                    ended = self._finish(self._train_epoch(epoch))
                    board.add(self.curve[-1])
                    on_epoch(self.curve[-1])
                    if ended:
                        return

    @property
    def stopped(self) -> bool:
        """Whether it ended before its last epoch, for lack of progress."""
        settings = self.recipe.early_stopping
        patience = settings.patience_epochs
        return patience is not None and epochs_without_gain(self._accuracies, settings.min_gain) >= patience

    @property
    def best_epoch(self) -> int:
        """The first of those with the best accuracy on the validation images, from 1; 0 before there is one."""
        return self._accuracies.index(max(self._accuracies)) + 1 if self.curve else 0

    @property
    def _accuracies(self) -> list[float]:
        return [record.val_accuracy for record in self.curve]

    def accuracy(self, network: nn.Module) -> float:
        """The task's metric on the validation images, a fraction."""
        return accuracy_of(
            network,
            self.images.val,
            self.images.preprocess,
            device=self.world.device,
            precision=self.setup.precision,
        )

    def _train_epoch(self, epoch: int) -> EpochRecord:
        """One epoch without its validation (accuracy 0)."""
        started = time.perf_counter()
        self.learner.train()
        losses, seen, waited = [], 0, 0.0
        group = self.recipe.accumulate_steps
        step = (epoch - 1) * self.steps_per_epoch
        rate = 0.0
        prepared = self._prepared(epoch)
        # One thread of its own for each of its operations: the cores are busy with the network.
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as beside:
            coming = beside.submit(next, prepared)
            for index in range(self.batches.per_epoch):
                before = time.perf_counter()
                images, targets = coming.result()
                waited += time.perf_counter() - before
                in_group = min(group, self.batches.per_epoch - index // group * group)
                loss = self._loss(images, targets)
                # Not before: dropout in the forward pass draws from the same global random state as augmentation, and
                # nothing behind it does. So all is drawn in the order in which it would be without a thread.
                if index + 1 < self.batches.per_epoch:
                    coming = beside.submit(next, prepared)
                if index % group == 0:
                    # Here rather than behind the step: a forward pass into memory that gradients have just left makes
                    # the backward pass fetch new memory, which on a CPU costs a small network some per cent.
                    self.optimizer.zero_grad(set_to_none=True)
                self.scaler.scale(loss / in_group).backward()  # type: ignore[no-untyped-call]
                losses.append(loss.detach())
                seen += len(images) * self.world.size
                if (index + 1) % group == 0 or index + 1 == self.batches.per_epoch:
                    rate = learning_rate(self.recipe, self.peak_lr, step, self.steps_per_epoch)
                    step += 1
                    self._update(rate, step)
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise DivergedError(
                f"the training diverged in epoch {epoch} (its loss is {mean})", "lower it: --set optimizer.lr=..."
            )
        seconds = time.perf_counter() - started
        return EpochRecord(
            epoch=epoch,
            lr=rate,
            train_loss=mean,
            val_accuracy=0.0,
            images_per_s=seen / seconds,
            data_wait_share=waited / seconds,
            seconds=seconds,
        )

    def _prepared(self, epoch: int) -> Iterator[tuple[torch.Tensor, Any]]:
        """Normalised, augmented images and their targets. What is random hangs on the step alone."""
        for index, indices in enumerate(self.batches.epoch(epoch)):
            generator = seed_step(self.recipe.seed, epoch, index, self.world.rank)
            progress = (epoch - 1 + index / self.batches.per_epoch) / self.recipe.epochs
            images, targets = self.lesson.batch(indices, generator, progress)
            yield images.contiguous(memory_format=self.setup.memory_format), targets

    def _loss(self, images: torch.Tensor, targets: Any) -> torch.Tensor:
        with autocast(self.world.device, self.setup.precision):
            learnt = self.parallel(images)
            taught = self.teacher(images, features=learnt[1] is not None) if self.teacher is not None else None
        loss = self.lesson.loss(learnt[0], targets)
        if taught is None:
            return loss
        return distilled(
            loss, self.lesson.likeness(learnt[0], taught[0]), learnt[1], taught[1], self.recipe.distillation
        )

    def _update(self, rate: float, step: int) -> None:
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        if self.recipe.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip_gradients(self.parameters, self.recipe.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update(self.learner.network, step)

    def _finish(self, record: EpochRecord) -> bool:
        """Validate, keep what has to be kept, and tell whether that was the last epoch."""
        started = time.perf_counter()
        accuracy = self.world.agree(self.accuracy(self.network) if self.world.is_first else 0.0)
        seconds = record.seconds + time.perf_counter() - started
        record = EpochRecord(**{**asdict(record), "val_accuracy": accuracy, "seconds": seconds})
        self.curve.append(record)
        if record.epoch > self.recipe.epochs - self.recipe.checkpoints.average_epochs:
            self._add_to_sums()
        if self.world.is_first:
            # The state last: whatever it speaks of is there.
            if self.best_epoch == record.epoch:
                save_tensors(self.folder / BEST, self.network.state_dict(), {"epoch": record.epoch})
            write_csv(self.folder / LOG, self.curve)
            self._save()
        return record.epoch == self.recipe.epochs or self.stopped

    def averaged(self) -> dict[str, torch.Tensor] | None:
        """The mean weights of the last epochs; None where the recipe wants none or the training ended before them."""
        if not self.summed:
            return None
        return {k: v / self.summed if v.is_floating_point() else v for k, v in self.sums.items()}

    def _add_to_sums(self) -> None:
        for name, tensor in self.network.state_dict().items():
            known = self.sums.get(name)
            self.sums[name] = known + tensor if known is not None and tensor.is_floating_point() else tensor.clone()
        self.summed += 1

    def _save(self) -> None:
        tensors = {
            **prefixed("learner", self.learner.state_dict()),
            **prefixed("optimizer", optimizer_tensors(self.optimizer)),
            **prefixed("sums", self.sums),
        }
        if self.average is not None:
            tensors.update(prefixed("average", self.average.module.state_dict()))
        story = {
            "recipe": self.recipe.model_dump(mode="json"),
            "setup": asdict(self.setup),
            "optimizer": group_numbers(self.optimizer),
            "scaler": self.scaler.state_dict(),
            "curve": [asdict(record) for record in self.curve],
            "summed": self.summed,
        }
        save_tensors(self.folder / STATE, tensors, story)

    def _resume(self) -> None:
        path = self.folder / STATE
        if not path.exists():
            return
        tensors, story = load_tensors(path)
        if story.get("recipe") != self.recipe.model_dump(mode="json"):
            raise UserError(f"'{path}' is of a training with another recipe", "give another --out, or remove it")
        try:
            self.learner.load_state_dict(below("learner", tensors))
            if self.average is not None:
                self.average.module.load_state_dict(below("average", tensors))
            restore_optimizer(self.optimizer, below("optimizer", tensors), story["optimizer"])
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(story["scaler"])
        except (RuntimeError, ValueError) as error:
            raise UserError(f"'{path}' is of another network", "give another --out, or remove it") from error
        self.sums = {k: v.to(self.world.device) for k, v in below("sums", tensors).items()}
        self.curve = [EpochRecord(**record) for record in story["curve"]]
        self.summed = story["summed"]


def epochs_without_gain(accuracies: Sequence[float], min_gain: float) -> int:
    """How many epochs ago the accuracy last grew by more than `min_gain` over the last one that had."""
    best, last = -math.inf, 0
    for epoch, accuracy in enumerate(accuracies, start=1):
        if accuracy > best + min_gain:
            best, last = accuracy, epoch
    return len(accuracies) - last


def kept_setup(folder: Path) -> Setup | None:
    """How the training in a folder runs, where it has begun."""
    path = folder / STATE
    if not path.exists():
        return None
    return Setup(**load_tensors(path)[1]["setup"])


def _make_optimizer(learner: Learner, recipe: Recipe, *, fused: bool) -> torch.optim.Optimizer:
    """Norms and biases get no weight decay (timm's rule: tensors of one dimension).

    `fused`: where there is such a form. Not where a scaler may skip the first step: torch's fused sgd then goes on from
    a momentum that nobody has set (torch 2.15).
    """
    settings = recipe.optimizer
    # timm's name for sgd without Nesterov, which needs a momentum.
    name = "momentum" if settings.name == "sgd" and not settings.momentum else settings.name
    options: dict[str, Any] = {"fused": True} if fused and name in _FUSED else {}
    return create_optimizer_v2(
        learner,
        opt=name,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        **options,
    )
