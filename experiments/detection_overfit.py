"""Whether targets, loss and decoding of the detection head agree: a detector has to learn its own images by heart.

`python -m experiments.detection_overfit --data shared/data/detection/coco_subset.tar --out FOLDER` trains a network of
`detect` on the training images of a data set without augmentation, and measures mAP on the same images. Wrong targets,
a loss that pulls elsewhere, or boxes that are decoded otherwise than they were learnt keep it from rising. Every line
it prints is a JSON object, one for each epoch. It goes on where it was stopped, from `FOLDER/state.safetensors`, and
ends when mAP@50 reaches `--until` or the epochs are over.

The recipe is `detection-overfit`. The network is the fastest to train of the space's anchors with dense convolutions.
Training images that the loader holds out for validation take part: there is nothing to validate.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import nn

from nas.data.images import ImageTraits, Preprocess
from nas.tasks import TASKS
from nas.tasks.detection.data import load_detection
from nas.tasks.detection.data.values import DetectionData, DetectionSplit
from nas.tasks.examples import Examples
from nas.tasks.recipes import recipe_named
from nas.training.folder import kept_setup, train_in
from nas.training.loop import Training
from nas.training.recipe import Recipe
from nas.training.result import EpochRecord
from nas.training.world import World
from search_spaces import load_search_space
from search_spaces.signature import Size


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
    images: DetectionSplit,
    preprocess: Preprocess,
    size: Size,
    recipe: Recipe,
    folder: Path,
    *,
    until: float,
) -> list[EpochRecord]:
    """Train `network` from where the folder's state left off until it knows `images`; prints and returns the curve.

    Raises:
        UserError: the folder's state is damaged or of another training, or the training diverges.
    """
    examples = Examples(train=images, val=images, preprocess=preprocess, size=size, traits=ImageTraits(flip_ok=False))
    world = World(0, 1, torch.device("cpu"))
    objective = TASKS["detection"].objective(network, examples, recipe, device=world.device)
    training = Training(network, objective, recipe, world=world, setup=kept_setup(folder))

    def told(record: EpochRecord) -> bool:
        print(json.dumps(asdict(record)), flush=True)
        return record.val_accuracy >= until

    train_in(folder, training, told)
    return training.curve


def _dense(document: Mapping[str, Any]) -> bool:
    """Whether neither backbone nor neck has depthwise convolutions."""
    return "mbconv" not in document["decisions"].values()


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder or archive.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Of the checkpoint.")
@click.option("--resolution", default=320, show_default=True)
@click.option("--epochs", default=200, show_default=True)
@click.option("--lr", default=2e-3, show_default=True)
@click.option("--until", default=0.8, show_default=True, help="mAP@50 that is enough.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="bf16", show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(
    data: Path, out: Path, resolution: int, epochs: int, lr: float, until: float, precision: str, threads: int
) -> None:
    """Learn the training images by heart."""
    torch.set_num_threads(threads)
    loaded = load_detection(data, max_resolution=resolution)
    images = everything(loaded, resolution)
    space = load_search_space("detect")
    recipe = recipe_named("detection-overfit").changed(
        epochs=epochs, optimizer={"lr": lr}, schedule={"warmup_fraction": 0.05}, precision=precision, channels_last=True
    )
    torch.manual_seed(recipe.seed)
    arch = next(a for a in space.anchors if space.resolution(a) == resolution and _dense(space.to_json(a)))
    network = space.build(arch, loaded.output_size)
    print(json.dumps({"images": len(images), "boxes": sum(map(len, images.boxes)), "network": arch.key}), flush=True)
    overfit(network, images, loaded.preprocess, loaded.output_size, recipe, out, until=until)


if __name__ == "__main__":
    main()
