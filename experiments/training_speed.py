"""How fast the fine-tuning loop is beside a bare PyTorch loop on the same network, and how long it waits for data.

    python -m experiments.training_speed --network resnet18 --resolution 64

Both do the same forward and backward passes and optimiser steps on the same batches, in the same precision and memory
layout. The bare loop does nothing else: its images lie ready as normalised tensors, without augmentation, and there
is no averaging of weights, no logging and no schedule. The two alternate, round by round, so that a machine that slows
down slows both.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np
import torch
from torch import nn

from nas.data.images import ImageSplit, Preprocess
from nas.finetune.images import Images
from nas.finetune.recipe_files import load_recipe
from nas.finetune.setup import Setup, choose_setup
from nas.finetune.trainer import Trainer
from nas.finetune.world import joined_world
from nas.tasks import classification
from nas.training.optim import make_sgd
from nas.training.precision import autocast
from nas.zoo import ZOO

CLASSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What came out, medians over the rounds."""

    setup: Setup
    loop_images_per_s: float
    bare_images_per_s: float
    ratio: float
    """Median of the rounds' ratios loop / bare: above 1 the loop is faster."""
    data_wait_share: float
    """Of the loop's training time (fraction)."""

    def __str__(self) -> str:
        layout = "channels last" if self.setup.channels_last else "contiguous"
        return (
            f"{self.setup.precision}, {layout}, batch {self.setup.batch_size}: "
            f"loop {self.loop_images_per_s:.0f} img/s, "
            f"bare {self.bare_images_per_s:.0f} img/s, ratio {self.ratio:.3f}, "
            f"waiting for data {100 * self.data_wait_share:.1f} %"
        )


def compare(network: str, resolution: int, *, images: int, recipe: str, overrides: Sequence[str], rounds: int) -> Speed:
    """Train on random images both ways, `rounds` epochs each after one to warm up."""
    settings = load_recipe(recipe, ["start=scratch", *overrides])
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, resolution, resolution, 3), dtype=np.uint8)
    split = ImageSplit(pixels, rng.integers(0, CLASSES, images))
    preprocess = Preprocess.fit(pixels)
    data = Images(train=split, val=split, test=split, preprocess=preprocess, num_classes=CLASSES, flip_ok=True)
    with joined_world() as world, tempfile.TemporaryDirectory() as folder:
        mine = ZOO[network].build(CLASSES, resolution)
        setup = choose_setup(settings, mine, resolution, images, world.device)
        trainer = Trainer(mine, data, settings, setup, folder=Path(folder), world=world)
        bare = _Bare(ZOO[network].build(CLASSES, resolution), trainer)
        pairs = [(trainer._train_epoch(n + 1), bare.epoch()) for n in range(rounds + 1)][1:]
    return Speed(
        setup=setup,
        loop_images_per_s=median(record.images_per_s for record, _ in pairs),
        bare_images_per_s=median(rate for _, rate in pairs),
        ratio=median(record.images_per_s / rate for record, rate in pairs),
        data_wait_share=median(record.data_wait_share for record, _ in pairs),
    )


class _Bare:
    """The loop that a tutorial would show."""

    def __init__(self, network: nn.Module, trainer: Trainer) -> None:
        self.setup, self.device = trainer.setup, trainer.world.device
        self.network = network.to(self.device).to(memory_format=self.setup.memory_format)
        self.optimizer = make_sgd(self.network, 0.01, 0.9, 5e-4)
        split, preprocess = trainer.images.train, trainer.images.preprocess
        assert isinstance(split, ImageSplit)
        images, labels = torch.from_numpy(split.images), torch.from_numpy(split.labels)
        self.batches = [
            (
                preprocess.tensor(images[chosen].to(self.device)).contiguous(memory_format=self.setup.memory_format),
                labels[chosen].to(self.device),
            )
            for chosen in trainer.batches.epoch(1)
        ]

    def epoch(self) -> float:
        """Images per second."""
        self.network.train()
        started = time.perf_counter()
        for images, targets in self.batches:
            with autocast(self.device, self.setup.precision):
                logits = self.network(images)
            loss = classification.loss(logits, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return sum(len(targets) for _, targets in self.batches) / (time.perf_counter() - started)


@click.command()
@click.option("--network", type=click.Choice(sorted(ZOO)), default="resnet18", show_default=True)
@click.option("--resolution", default=64, show_default=True)
@click.option("--images", default=512, show_default=True, help="Training images, random ones.")
@click.option("--recipe", default="base", show_default=True)
@click.option("--set", "overrides", multiple=True, metavar="KEY.SUB=VALUE", help="Change one setting (repeatable).")
@click.option("--rounds", default=5, show_default=True, help="Epochs each way.")
def main(network: str, resolution: int, images: int, recipe: str, overrides: tuple[str, ...], rounds: int) -> None:
    """Images per second of the fine-tuning loop beside those of a bare loop."""
    speed = compare(network, resolution, images=images, recipe=recipe, overrides=overrides, rounds=rounds)
    click.echo(f"{network} at {resolution} px, recipe {recipe}: {speed}")


if __name__ == "__main__":
    main()
