"""Whether targets, loss and decoding of the pose head agree: a network has to learn its own images by heart.

`python -m experiments.pose_overfit --data coco-keypoints/ --out FOLDER` trains a network of `pose` on the training
images of a data set without augmentation, and measures OKS-mAP on the same images. Points that are decoded otherwise
than they were learnt, or a loss that pulls elsewhere, keep it from rising. It proves nothing about other images. Every
line it prints is a JSON object: one for each epoch, one with the processor time that training took, and with `--files`
one for each exported file, with its figures on the same images. It goes on where it was stopped, and ends when
OKS-mAP@50:95 reaches `--until` or the epochs are over.

The recipe is `pose-overfit`. The network is the fastest to train of the space's anchors with dense convolutions.
Training images that the loader holds out for validation take part: there is nothing to validate.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click
import numpy as np
import torch
from torch import nn

from nas.data.images import Preprocess
from nas.deploy.deploy import deploy
from nas.deployment import Deployment
from nas.networks.description import NetworkDescription
from nas.runtimes import load_runtime
from nas.tasks import TASKS
from nas.tasks.examples import Examples
from nas.tasks.pose.data import PoseData, PoseSplit, load_pose
from nas.tasks.pose.data.values import PoseTraits
from nas.tasks.pose.evaluate import figures_of, found_by
from nas.tasks.recipes import recipe_named
from nas.training.folder import kept_setup, train_in
from nas.training.loop import Training
from nas.training.recipe import Recipe
from nas.training.result import EpochRecord
from nas.training.world import World
from search_spaces import load_search_space
from search_spaces.architecture import Architecture
from search_spaces.modules import folded
from search_spaces.signature import Size


def everything(data: PoseData, resolution: int) -> PoseSplit:
    """The training and the validation images."""
    train, val = data.at("train", resolution), data.at("val", resolution)
    return replace(
        train,
        images=np.concatenate([train.images, val.images]),
        boxes=train.boxes + val.boxes,
        extents=np.concatenate([train.extents, val.extents]),
        sources=None,
    )


def overfit(
    network: nn.Module,
    images: PoseSplit,
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
    traits = PoseTraits(flip_ok=False, skeleton=images.skeleton)
    examples = Examples(train=images, val=images, preprocess=preprocess, size=size, traits=traits)
    world = World(0, 1, torch.device("cpu"))
    objective = TASKS["pose"].objective(network, examples, recipe, device=world.device)
    training = Training(network, objective, recipe, world=world, setup=kept_setup(folder))

    def told(record: EpochRecord) -> bool:
        print(json.dumps(asdict(record)), flush=True)
        return record.val_accuracy >= until

    train_in(folder, training, told)
    return training.curve


def smallest_dense(resolution: int) -> Architecture:
    """The first anchor of the space at that resolution without depthwise convolutions."""
    space = load_search_space("pose")
    found = (a for a in space.anchors if space.resolution(a) == resolution)
    return next(a for a in found if "mbconv" not in space.parameters(a).values())


def files_figures(
    network: nn.Module, description: NetworkDescription, data: PoseData, images: PoseSplit, folder: Path
) -> Iterator[dict[str, object]]:
    """Figures on `images` of the network in torch, and of its file in every runtime and precision of this machine."""
    known = data.with_splits(train=images, val=images, test=images)
    task = TASKS["pose"]
    figures = figures_of(found_by(network, images, data.preprocess), images)
    yield {"file": "torch", **asdict(figures)}
    deployments = [
        Deployment(name, precision, 1)
        for name in ("onnxruntime", "openvino")
        for precision in load_runtime(name).precisions
        if load_runtime(name).unsupported(precision) is None
    ]
    deployed = deploy(network, description, known, deployments, folder=folder, max_drop=1.0, upper_bound=lambda _: 1.0)
    for tried in deployed.tried:
        name = f"{tried.deployment.runtime} {tried.deployment.precision}"
        if tried.path is None:
            yield {"file": name, "reason": tried.reason}
            continue
        session = load_runtime(tried.deployment.runtime).load(tried.path, tried.deployment)
        found = task.figures_in_runtime(
            session.run, images, data.preprocess, description.signature, classes=data.classes
        )
        yield {"file": name, "float part": tried.in_float, **found}


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder or archive.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Of the checkpoint.")
@click.option("--resolution", default=320, show_default=True)
@click.option("--epochs", default=250, show_default=True)
@click.option("--lr", default=2e-3, show_default=True)
@click.option("--until", default=0.9, show_default=True, help="OKS-mAP@50:95 that is enough.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="bf16", show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--files", is_flag=True, help="Export the network for every runtime and precision, and judge the files.")
def main(
    data: Path, out: Path, resolution: int, epochs: int, lr: float, until: float, precision: str, threads: int,
    files: bool,
) -> None:  # fmt: skip
    """Learn the training images by heart."""
    torch.set_num_threads(threads)
    began = time.process_time()
    loaded = load_pose(data, max_resolution=resolution)
    images = everything(loaded, resolution)
    recipe = recipe_named("pose-overfit").changed(
        epochs=epochs, optimizer={"lr": lr}, schedule={"warmup_fraction": 0.05}, precision=precision, channels_last=True
    )
    torch.manual_seed(recipe.seed)
    arch = smallest_dense(resolution)
    space = load_search_space("pose")
    network = space.build(arch, loaded.output_size)
    poses = sum(int(p.labelled.sum()) for p in images.boxes)
    print(json.dumps({"images": len(images), "poses": poses, "network": arch.key}), flush=True)
    overfit(network, images, loaded.preprocess, loaded.output_size, recipe, out, until=until)
    print(json.dumps({"core_minutes": (time.process_time() - began) / 60}), flush=True)
    if files:
        description = NetworkDescription.of_architecture(space, arch, loaded.output_size)
        for figures in files_figures(folded(network.eval()), description, loaded, images, out / "files"):
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
