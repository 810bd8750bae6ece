"""Training of a supernet: several paths per step, the largest one teaching the others."""

import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, kl_div, log_softmax, softmax

from nas.errors import UserError
from nas.evaluation.supernet.checkpoint import load_supernet, save_supernet
from nas.evaluation.supernet.config import LOG_STEPS, StepLog, SupernetConfig, SupernetLog
from nas.evaluation.supernet.network import Supernet
from nas.evaluation.supernet.sandwich import Admissible, Sandwich
from nas.tasks import TaskData, task_of
from nas.tasks.examples import examples_of
from nas.training.objective import has_diverged
from nas.training.optimizer import clip_gradients, make_optimizer, set_rate
from nas.training.precision import Precision, autocast, resolve_device
from nas.training.schedule import learning_rate
from nas.training.setup import choose_setup
from search_spaces import Architecture

TIME_LIMIT = "time limit"


def train_supernet(
    supernet: Supernet,
    data: TaskData,
    config: SupernetConfig,
    *,
    checkpoint: Path | None = None,
    checkpoint_s: float = 60.0,
    admissible: Admissible | None = None,
    device: str = "auto",
    callback: Callable[[StepLog], bool | None] | None = None,
) -> SupernetLog:
    """Train in place on `data.train`; each step a largest, a smallest and random paths on the same images.

    The largest path learns the labels, the others the largest one's outputs (Yu & Huang 2019,
    https://arxiv.org/abs/1903.05134); `config.sandwich` turns both off. Images are augmented at the largest size
    and shrunk for the other paths.

    With `checkpoint` the state is written every `checkpoint_s` seconds and at the end, and a file that is there is
    gone on from: every step's draws depend on the seed and its number alone, so on a CPU the result is that of a
    training that was never interrupted, unless `config.seconds` cuts in. A loss or gradient that is not finite ends
    it with `stopped="diverged ..."`, with the weights from before that step. `callback` may end it after an entry of
    the curve; `admissible` is described at `Sandwich`. The supernet ends on `device`, in evaluation mode.

    Raises `UserError` for labels that it has no output for, fewer than two images, or a foreign checkpoint.
    """
    task_of(data).check(data)
    if data.output_size != supernet.size:
        raise UserError(
            f"the supernet's answers have the size {supernet.size}, the data need {data.output_size}",
            "build it for these data",
        )
    with torch.random.fork_rng(devices=[]):
        run = _Run(supernet, data, config, admissible, resolve_device(device))
        if checkpoint is not None and checkpoint.exists():
            run.resume(load_supernet(checkpoint, supernet, run.optimizer, config))
        return run.loop(checkpoint, checkpoint_s, callback)


class _Run:
    """The state of one call of `train_supernet`."""

    def __init__(
        self,
        supernet: Supernet,
        data: TaskData,
        config: SupernetConfig,
        admissible: Admissible | None,
        device: torch.device,
    ) -> None:
        self.supernet, self.config, self.device = supernet.to(device), config, device
        self.recipe = recipe = config.recipe
        space = supernet.space
        self.sandwich = Sandwich(space, config.random_paths, admissible, ends=config.sandwich, fair=config.fair)
        examples = examples_of(data, space.inputs[-1])
        self.objective = task_of(data).objective(supernet, examples, recipe, device=device)
        self.guessing_loss: float | None = None
        self.batch = min(recipe.fixed_batch_size, self.objective.train_examples)
        self.optimizer = make_optimizer(supernet, recipe.optimizer, recipe.optimizer.lr)
        self.precision: Precision | None = None if recipe.precision == "auto" else recipe.precision
        self.step = 0
        self.curve: list[StepLog] = []
        self.recent: list[tuple[float, float]] = []
        self.spent_s = self.spent_core_s = self.longest_step_s = 0.0
        self.stopped: str | None = None

    def resume(self, log: SupernetLog) -> None:
        self.step, self.curve, self.precision = log.steps, list(log.curve), log.precision
        self.spent_s, self.spent_core_s = log.seconds, log.core_seconds
        # a checkpoint of another time limit is refused, so time that ran out is a reason for good
        self.stopped = log.stopped if log.diverged or log.stopped == TIME_LIMIT else None

    def loop(
        self, checkpoint: Path | None, checkpoint_s: float, callback: Callable[[StepLog], bool | None] | None
    ) -> SupernetLog:
        self.supernet.train()
        if self.precision is None:
            self.precision = self.choose_precision()
        saved_s = self.spent_s
        while self.step < self.config.steps and self.stopped is None:
            limit_s = self.recipe.time_limit_s
            if limit_s is not None and self.spent_s + self.longest_step_s > limit_s:
                self.stopped = TIME_LIMIT
                break
            start, core_start = time.perf_counter(), time.process_time()
            self.stopped = self.train_step()
            seconds = time.perf_counter() - start
            self.spent_s += seconds
            self.spent_core_s += time.process_time() - core_start
            self.longest_step_s = max(self.longest_step_s, seconds)
            if self.stopped is None and self.step % LOG_STEPS == 0:
                largest, smallest = np.mean(self.recent, axis=0).tolist()
                self.curve.append(StepLog(self.step, largest, smallest))
                self.recent = []
                if callback is not None and callback(self.curve[-1]):
                    self.stopped = "stopped by callback"
                # saved between entries only, so that the means of the next one are whole
                if checkpoint is not None and self.spent_s - saved_s >= checkpoint_s:
                    self.save(checkpoint)
                    saved_s = self.spent_s
        if checkpoint is not None:
            self.save(checkpoint)
        self.supernet.eval()
        return self.log()

    def log(self) -> SupernetLog:
        assert self.precision is not None
        return SupernetLog(
            self.step, self.spent_s, self.spent_core_s, self.precision, tuple(self.curve), stopped=self.stopped
        )

    def save(self, checkpoint: Path) -> None:
        save_supernet(checkpoint, self.supernet, self.optimizer, self.config, self.log())

    def choose_precision(self) -> Precision:
        arch = self.sandwich.draw(np.random.default_rng(self.recipe.seed))[0]
        subnet, spec = self.supernet.subnet(arch), self.supernet.space.input(arch)
        return choose_setup(self.recipe, subnet, spec, self.objective.train_examples, self.device).precision

    def train_step(self) -> str | None:
        """One step of the optimiser; why it was not taken, if so."""
        images, targets = self.next_batch()
        self.optimizer.zero_grad(set_to_none=True)
        paths = self.sandwich.draw(np.random.default_rng([self.recipe.seed, self.step]))
        teacher: Tensor | None = None
        losses: list[Tensor] = []
        assert self.precision is not None
        for arch in paths:
            sized = _shrunk(images, self.supernet.space.input(arch).shape[-1])
            with autocast(self.device, self.precision):
                logits = self.supernet(sized, arch).float()
            loss = self.loss(logits, targets, teacher)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            if teacher is None and self.config.sandwich:
                teacher = softmax(logits.detach(), dim=1)
        self.average_gradients(paths)
        limit = (self.recipe.clip_norm or math.inf) * math.sqrt(len(paths))
        norm = float(clip_gradients(self.supernet.parameters(), limit))
        largest, smallest = float(losses[0]), float(losses[-1])
        if self.guessing_loss is None:
            self.guessing_loss = self.objective.guessing_loss(largest)
        if not math.isfinite(norm) or has_diverged(largest, self.guessing_loss):
            return f"diverged at step {self.step + 1}: loss {largest:g}, gradient norm {norm:g}"
        progress = (self.step + 0.5) / self.config.steps
        if self.recipe.time_limit_s is not None:
            progress = max(progress, min(1.0, self.spent_s / self.recipe.time_limit_s))
        rate = learning_rate(self.recipe.schedule, self.recipe.optimizer.lr, progress, self.recipe.epochs)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.step += 1
        self.recent.append((largest, smallest))
        return None

    def average_gradients(self, paths: list[Architecture]) -> None:
        """Divide each gradient by the number of paths it came from.

        Over all paths of the step the mean would be smallest for what few of them use: blocks of a family that was
        drawn once would learn at a quarter of the learning rate of the stem.
        """
        users = Counter(name for arch in paths for name in self.supernet.shared_names(arch))
        for name, parameter in self.supernet.named_parameters():
            if parameter.grad is not None and users[name] > 1:
                parameter.grad.div_(users[name])

    def loss(self, logits: Tensor, targets: Tensor, teacher: Tensor | None) -> Tensor:
        if teacher is None:
            return self.objective.loss(logits, targets)
        share = self.config.distillation
        loss = share * kl_div(log_softmax(logits, dim=1), teacher, reduction="batchmean")
        if share < 1:
            loss = loss + (1 - share) * self.objective.loss(logits, targets)
        return loss

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Augmented images (n, 3, h, h) at the largest size and their labels (n,), both on the device."""
        count = self.objective.train_examples
        epoch, at = divmod(self.step, count // self.batch)
        order = np.random.default_rng([self.recipe.seed, epoch, 1]).permutation(count)
        indices = torch.from_numpy(order[at * self.batch : (at + 1) * self.batch])
        draws = int(np.random.default_rng([self.recipe.seed, self.step, 2]).integers(2**62))
        generator = torch.Generator().manual_seed(draws)
        return self.objective.batch(indices, generator, self.step / self.config.steps)


def _shrunk(images: Tensor, side: int) -> Tensor:
    if images.shape[-1] == side:
        return images
    return interpolate(images, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
