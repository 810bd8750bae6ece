"""How fast the fine-tuning loop is beside a bare PyTorch loop on the same network, and how long it waits for data.

    python -m experiments.training_speed --network resnet18 --resolution 64

All do the same forward and backward passes on batches of the same size, in the same precision and memory layout.
`bare` does nothing else but plain steps of the optimiser: its images lie ready as normalised tensors, and there is no
augmentation, no clipping, no averaging of weights, no logging and no schedule. `inline` is the bare loop with the
recipe's own work written into it (the same augmentation, clipping by torch's function and averaging by timm's): what a
careful user's script would cost. They take turns, round by round, so that a machine that slows down slows all.

Processor time is shown beside the speed: on a machine where others compute, it is what can be compared.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import click
import numpy as np
import torch
from timm.utils.model_ema import ModelEmaV3
from torch import nn

from nas.data.images import ImageSplit, ImageTraits, Preprocess
from nas.tasks import classification
from nas.tasks.classification.augment import Augmenter
from nas.tasks.classification.baselines import BASELINES
from nas.tasks.classification.objective import ClassificationObjective
from nas.tasks.examples import Examples
from nas.tasks.recipes import recipe_named
from nas.training.loop import Training
from nas.training.optimizer import make_optimizer
from nas.training.precision import autocast
from nas.training.recipe import OptimizerSettings
from nas.training.setup import Setup
from nas.training.world import joined_world

CLASSES = 10


@dataclass(frozen=True, slots=True)
class Round:
    """One epoch of one loop."""

    images_per_s: float
    core_ms_per_image: float
    """Processor time of all threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What came out: the rounds of each loop, side by side."""

    setup: Setup
    rounds: Mapping[str, Sequence[Round]]
    """By loop: `loop`, `bare`, `inline`."""
    data_wait_share: float
    """Of the loop's training time (fraction), median over the rounds."""

    def ratio(self, yardstick: str) -> float:
        """Median of the rounds' ratios of speeds: above 1 the loop is faster."""
        pairs = zip(self.rounds["loop"], self.rounds[yardstick], strict=True)
        return median(mine.images_per_s / other.images_per_s for mine, other in pairs)

    def core_ratio(self, yardstick: str) -> float:
        """The same of processor time per image: above 1 the loop takes less."""
        pairs = zip(self.rounds["loop"], self.rounds[yardstick], strict=True)
        return median(other.core_ms_per_image / mine.core_ms_per_image for mine, other in pairs)

    def __str__(self) -> str:
        layout = "channels last" if self.setup.channels_last else "contiguous"
        lines = [
            f"{self.setup.precision}, {layout}, batch {self.setup.batch_size}; "
            f"waiting for data {100 * self.data_wait_share:.1f} %",
            "| | images/s | loop's speed / its | core-ms per image | its processor time / loop's |",
            "|---|---|---|---|---|",
        ]
        for name, rounds in self.rounds.items():
            ratios = ("", "") if name == "loop" else (f"{self.ratio(name):.3f}", f"{self.core_ratio(name):.3f}")
            rate, cost = median(r.images_per_s for r in rounds), median(r.core_ms_per_image for r in rounds)
            lines.append(f"| {name} | {rate:.0f} | {ratios[0]} | {cost:.2f} | {ratios[1]} |")
        return "\n".join(lines)


def compare(network: str, resolution: int, *, images: int, recipe: str, overrides: Sequence[str], rounds: int) -> Speed:
    """Train on random images with each loop, `rounds` epochs after one to warm up."""
    settings = recipe_named(recipe, ["start=scratch", *overrides])
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, resolution, resolution, 3), dtype=np.uint8)
    split = ImageSplit(pixels, rng.integers(0, CLASSES, images))
    preprocess = Preprocess.fit(pixels)
    # One image to validate on: what is timed is training.
    examples = Examples(train=split, val=split.some(1), preprocess=preprocess, size=(CLASSES,), traits=ImageTraits())
    with joined_world() as world:

        def built() -> nn.Module:
            model = BASELINES[network]
            return model.build(model.signature((CLASSES,), split.input)).to(world.device)

        objective = ClassificationObjective(built(), examples, settings, world.device)
        training = Training(built(), objective, settings.changed(epochs=rounds + 1), world=world)
        waits: list[float] = []

        def loop(epoch: int) -> None:
            training._epoch(epoch, time.perf_counter())
            waits.append(training.curve[-1].data_wait_share)

        loops = {
            "loop": loop,
            "bare": _Bare(built(), training, examples).epoch,
            "inline": _Inline(built(), training, examples).epoch,
        }
        found: dict[str, list[Round]] = {name: [] for name in loops}
        for epoch in range(1, rounds + 2):
            for name, run in loops.items():
                found[name].append(_timed(lambda run=run, epoch=epoch: run(epoch), images, world.device))  # type: ignore[misc]
    return Speed(
        setup=training.setup, rounds={name: runs[1:] for name, runs in found.items()}, data_wait_share=median(waits[1:])
    )


def _timed(run: Callable[[], None], images: int, device: torch.device) -> Round:
    started, cores = time.perf_counter(), time.process_time()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    cores = time.process_time() - cores
    return Round(images / (time.perf_counter() - started), 1e3 * cores / images)


class _Bare:
    """The loop that a tutorial would show."""

    def __init__(self, network: nn.Module, training: Training, examples: Examples[ImageSplit]) -> None:
        self.training, self.setup, self.device = training, training.setup, training.world.device
        self.preprocess = examples.preprocess
        self.network = network.to(memory_format=self.setup.memory_format).train()
        self.optimizer = make_optimizer(self.network, OptimizerSettings(fused=False), 0.01)
        split = examples.train
        self.images, self.labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
        self.ready = [self.batch(chosen) for chosen, _ in training.batches.epoch(1)]

    def batch(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images = self.preprocess.tensor(self.changed(self.images[chosen].to(self.device)))
        return images.contiguous(memory_format=self.setup.memory_format), self.labels[chosen].to(self.device)

    def changed(self, images: torch.Tensor) -> torch.Tensor:
        return images

    def batches(self, epoch: int) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        return self.ready

    def epoch(self, epoch: int) -> None:
        for images, targets in self.batches(epoch):
            with autocast(self.device, self.setup.precision):
                logits = self.network(images)
            loss = classification.loss(logits, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.update()

    def update(self) -> None:
        self.optimizer.step()


class _Inline(_Bare):
    """The same with the recipe's augmentation, clipping and average."""

    def __init__(self, network: nn.Module, training: Training, examples: Examples[ImageSplit]) -> None:
        recipe = training.recipe
        self.generator = torch.Generator().manual_seed(0)
        self.augmenter = Augmenter(recipe.augmentation, CLASSES, flip_ok=True)
        super().__init__(network, training, examples)
        self.average = ModelEmaV3(self.network, recipe.ema_decay, use_warmup=True) if recipe.ema_decay else None
        self.steps = 0

    def changed(self, images: torch.Tensor) -> torch.Tensor:
        return self.augmenter.images(images, self.generator)

    def batches(self, epoch: int) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        for chosen, _ in self.training.batches.epoch(epoch):
            yield self.augmenter.mixed(*self.batch(chosen), self.generator)

    def update(self) -> None:
        self.steps += 1
        if self.training.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.training.recipe.clip_norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.network, self.steps)


@click.command()
@click.option("--network", type=click.Choice(sorted(BASELINES)), default="resnet18", show_default=True)
@click.option("--resolution", default=64, show_default=True)
@click.option("--images", default=512, show_default=True, help="Training images, random ones.")
@click.option("--recipe", default="base", show_default=True)
@click.option("--set", "overrides", multiple=True, metavar="KEY.SUB=VALUE", help="Change one setting (repeatable).")
@click.option("--rounds", default=5, show_default=True, help="Epochs each way.")
def main(network: str, resolution: int, images: int, recipe: str, overrides: tuple[str, ...], rounds: int) -> None:
    """Images per second of the fine-tuning loop beside those of bare loops."""
    speed = compare(network, resolution, images=images, recipe=recipe, overrides=overrides, rounds=rounds)
    threads = f"{torch.get_num_threads()} threads"
    click.echo(f"{network} at {resolution} px, recipe {recipe}, {threads}, {speed}")


if __name__ == "__main__":
    main()
