"""Whether targets, loss and decoding of the detection head agree: a detector has to learn its own images by heart.

`python -m experiments.detection_overfit --data shared/data/detection/coco_subset.tar --out FOLDER` trains a network of
`detect` on the training images of a data set without augmentation, and measures mAP on the same images. Wrong targets,
a loss that pulls elsewhere, or boxes that are decoded otherwise than they were learnt keep it from rising. Every line
it prints is a JSON object. It goes on where it was stopped, from `FOLDER/state.safetensors`, and ends when mAP@50
reaches `--until` or the epochs are over.

The network is the fastest to train of the space's anchors with dense convolutions. Training images that the loader
holds out for validation take part: there is nothing to validate.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import nn

from nas.files.tensors import load_tensors, save_tensors
from nas.tasks.detection.data import load_detection
from nas.tasks.detection.data.values import DetectionData, DetectionSplit
from nas.tasks.detection.recipe import recipe
from nas.tasks.detection.train import DetectionLesson
from nas.training.config import Precision, TrainConfig
from nas.training.optim import lr_factor, make_optimizer
from nas.training.state import (
    below,
    group_numbers,
    optimizer_tensors,
    prefixed,
    restore_optimizer,
)
from search_spaces import load_search_space

STATE = "state.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement of the curve."""

    epoch: int
    train_loss: float
    """Mean since the point before."""
    map50: float
    map50_95: float
    cpu_minutes: float
    """Of all threads, since the very beginning."""


def everything(data: DetectionData, resolution: int) -> DetectionSplit:
    """The training and the validation images."""
    train, val = data.at("train", resolution), data.at("val", resolution)
    return DetectionSplit(
        np.concatenate([train.images, val.images]),
        train.boxes + val.boxes,
        np.concatenate([train.extents, val.extents]),
    )


def overfit(
    network: nn.Module,
    lesson: DetectionLesson,
    config: TrainConfig,
    precision: Precision,
    folder: Path,
    *,
    every: int,
    until: float,
) -> Iterator[Point]:
    """Train `network` from where the folder's state left off, and measure it every so many epochs.

    Raises:
        UserError: the folder's state is damaged.
        click.UsageError: it is of another training.
    """
    network.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(network, config)
    curve: list[Point] = []
    told: dict[str, Any] = {"config": asdict(config), "precision": precision}
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / STATE).exists():
        tensors, story = load_tensors(folder / STATE)
        if story["told"] != told:
            raise click.UsageError(f"'{folder}' holds a training with other settings; give another --out")
        network.load_state_dict(below("network", tensors))
        restore_optimizer(optimizer, below("optimizer", tensors), story["optimizer"])
        curve = [Point(**point) for point in story["curve"]]
    spent = curve[-1].cpu_minutes if curve else 0.0
    started = time.process_time()
    steps = round(lesson.train_images / config.batch_size)
    losses: list[float] = []
    for epoch in range(curve[-1].epoch if curve else 0, config.epochs):
        if curve and curve[-1].map50 >= until:
            return
        network.train()
        generator = torch.Generator().manual_seed(config.seed + epoch)
        order = torch.randperm(lesson.train_images, generator=generator)
        for step, indices in enumerate(order.tensor_split(steps)):
            progress = (epoch + step / steps) / config.epochs
            for group in optimizer.param_groups:
                group["lr"] = config.lr * lr_factor(progress, config.warmup_fraction)
            loss = lesson.loss(network, indices, generator, progress, precision)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
            optimizer.step()
            losses.append(float(loss.detach()))
        if (epoch + 1) % every and epoch + 1 < config.epochs:
            continue
        found = lesson.validate(network, precision)
        minutes = spent + (time.process_time() - started) / 60
        curve.append(
            Point(
                epoch=epoch + 1,
                train_loss=float(np.mean(losses)),
                map50=found.accuracy,
                map50_95=found.details["mAP@50:95"],
                cpu_minutes=minutes,
            )
        )
        losses.clear()
        save_tensors(
            folder / STATE,
            {
                **prefixed("network", network.state_dict()),
                **prefixed("optimizer", optimizer_tensors(optimizer)),
            },
            {
                "told": told,
                "optimizer": group_numbers(optimizer),
                "curve": [asdict(point) for point in curve],
            },
        )
        yield curve[-1]


def _dense(document: Mapping[str, Any]) -> bool:
    """Whether neither backbone nor neck has depthwise convolutions."""
    return "mbconv" not in document["decisions"].values()


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder or archive.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Of the checkpoint.")
@click.option("--resolution", default=320, show_default=True)
@click.option("--epochs", default=200, show_default=True)
@click.option("--every", default=5, show_default=True, help="Epochs between two measurements.")
@click.option("--lr", default=2e-3, show_default=True)
@click.option("--until", default=0.8, show_default=True, help="mAP@50 that is enough.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="bf16", show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(
    data: Path,
    out: Path,
    resolution: int,
    epochs: int,
    every: int,
    lr: float,
    until: float,
    precision: Precision,
    threads: int,
) -> None:
    """Learn the training images by heart."""
    torch.set_num_threads(threads)
    loaded = load_detection(data, max_resolution=resolution)
    images = everything(loaded, resolution)
    space = load_search_space("detect")
    config = recipe(
        epochs=epochs,
        lr=lr,
        augment="none",
        warmup_fraction=0.05,
        weight_decay=0.0,
        precision=precision,
        ema_decay=None,
    )
    torch.manual_seed(config.seed)
    arch = next(a for a in space.anchors if space.resolution(a) == resolution and _dense(space.to_json(a)))
    network = space.build(arch, loaded.output_size)
    lesson = DetectionLesson(network, images, images, config, loaded.preprocess, torch.device("cpu"))
    print(json.dumps({"images": len(images), "boxes": sum(map(len, images.boxes)), "network": arch.key}), flush=True)
    for point in overfit(network, lesson, config, precision, out, every=every, until=until):
        print(json.dumps({key: round(value, 4) for key, value in asdict(point).items()}), flush=True)


if __name__ == "__main__":
    main()
