"""A delivered pose network beside the other way to find poses: a detector, and a network of its own for each object.

`python -m experiments.top_down BUNDLE --data coco-keypoints/ --out FOLDER --minutes 8` trains a SimpleBaseline
(`experiments.heat_maps`) on crops of the training objects for so long, makes a file of it for the bundle's deployment,
and has it find the points in the boxes that the bundle finds in the test images. What was trained is kept in FOLDER.
Beside it stand the bundle, the same network in the true boxes, and the mean pose in the boxes found.

The time of the top-down way is that of a detector with the bundle's own decisions but without its tower for points, and
of one call for each labelled object of a test image on average; cropping is left out. So it is given the bundle's boxes
at a detector's price. Networks for crops are trained with scales, turns and mirror images as published, or with smaller
ones (`--changes`), and with a moving average of the weights. Test images are not mirrored for a second opinion, which
would double the calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments.heat_maps import BLOCKS, SimpleBaseline, crop_places, cropped, peaks, placed, spots, ways
from experiments.pose_latency import detector_of
from experiments.pose_persons import Row, found_in, show
from nas.bundles.predictor import Predictor
from nas.data.images import Preprocess
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.networks.description import NETWORK, read_description
from nas.runtimes import load_runtime
from nas.targets.preparing import deploy_untrained, new_folder, prepare_all
from nas.tasks.pose.data import PoseData, PoseSplit, load_pose
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.evaluate import figures_of
from nas.tasks.pose.floors import in_boxes_found, mean_pose
from nas.tasks.task import Run
from nas.text import milliseconds
from nas.training.loop import train
from nas.training.objective import Validation, random_inputs
from nas.training.precision import Precision, autocast
from nas.training.recipe import Recipe
from search_spaces import Architecture, TensorSpec

LARGEST_CHANGE, MOST_DEGREES = 0.3, 40.0
"""Of scales, as a share, and of turns: those of the paper."""
CALIBRATION_CROPS = 300
AT_ONCE = 64
RECIPE = Recipe().changed(
    epochs=1000,
    batch_size=32,
    optimizer={"name": "adam", "lr": 1e-3, "weight_decay": 0.0},
    schedule={"name": "cosine", "warmup_fraction": 0.02},
    ema_decay=0.998,
    ema_rise="ratio",
)
"""Adam at the published rate; as many epochs as its time allows."""


@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """The labelled objects of a split, one after the other."""

    images: Any
    """(images, rows, columns, 3) uint8, those of the split."""
    image: NDArray[np.int64]
    """(n,) index of each object's image."""
    boxes: torch.Tensor
    """(n, 4) float32, pixels of the image."""
    points: torch.Tensor
    """(n, K, 3) float32, as in `nas.tasks.pose.data.values.Poses`."""

    @classmethod
    def of(cls, split: PoseSplit) -> "Objects":
        """Those of `split` that have a labelled point."""
        labelled = [poses.labelled for poses in split.boxes]
        return cls(
            split.images,
            np.repeat(np.arange(len(split)), [int(which.sum()) for which in labelled]),
            torch.from_numpy(np.concatenate([p.xyxy[w] for p, w in zip(split.boxes, labelled, strict=True)])),
            torch.from_numpy(np.concatenate([p.points[w] for p, w in zip(split.boxes, labelled, strict=True)])),
        )

    def __len__(self) -> int:
        return len(self.image)

    def pixels(self, indices: torch.Tensor) -> torch.Tensor:
        """(b, rows, columns, 3) uint8: the whole images of the objects at `indices`."""
        return torch.from_numpy(self.images[self.image[indices.numpy()]])


class CropObjective:
    """Crops of objects and heat maps of their points; see `nas.training.objective.Objective`.

    The accuracy is the OKS-mAP@50:95 in the true boxes of the validation images.

    Args:
        data: whose training objects are learnt.
        size: rows and columns of a crop, multiples of 32.
        changes: largest changes of scale and turns, by the published ones.
    """

    def __init__(self, data: PoseData, size: tuple[int, int], changes: float = 1.0) -> None:
        self._objects, self._val = Objects.of(data.train), data.val
        self._preprocess, self._size, self._traits, self._changes = data.preprocess, size, data.traits, changes

    @property
    def input(self) -> TensorSpec:
        return TensorSpec((3, *self._size))

    @property
    def train_examples(self) -> int:
        return len(self._objects)

    @property
    def val_examples(self) -> int:
        return sum(len(poses) for poses in self._val.boxes)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        way = ways(self._objects.boxes[indices], self._size)
        return self._preprocess.tensor(cropped(self._objects.pixels(indices), way, self._size))

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """The targets are heat maps, and (b, K) bool whether a point is labelled and in the crop."""
        change, turn, side = torch.rand(3, len(indices), generator=generator)
        mirrored = (side < 0.5) & torch.tensor(self._traits.flip_ok)
        way = ways(
            self._objects.boxes[indices],
            self._size,
            scale=1 + self._changes * LARGEST_CHANGE * (2 * change - 1),
            degrees=self._changes * MOST_DEGREES * (2 * turn - 1),
            mirrored=mirrored,
        )
        points = self._objects.points[indices]
        mirror = self._traits.skeleton.mirror
        if mirror is not None:
            points = torch.where(mirrored[:, None, None], points[:, list(mirror)], points)
        places = crop_places(points[..., :2], way)
        rows, columns = self._size
        inside = ((places >= 0) & (places <= torch.tensor([columns, rows]))).all(dim=2)
        images = self._preprocess.tensor(cropped(self._objects.pixels(indices), way, self._size))
        return images, (spots(places, self._size), inside & (points[..., 2] > 0))

    def loss(self, outputs: torch.Tensor, targets: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        maps, labelled = targets
        return (outputs.float() - maps).square().mean(dim=(2, 3))[labelled].sum() / labelled.sum().clamp(min=1)

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return (outputs.float() - teacher_outputs.float()).square().mean()

    def guessing_loss(self, first_loss: float) -> float:
        return first_loss

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        network.eval()

        def run(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
            with torch.inference_mode(), autocast(torch.device("cpu"), precision):
                maps: NDArray[np.float32] = network(torch.from_numpy(inputs)).float().numpy()
            return maps

        found = in_crops(run, true_boxes(self._val), self._val, self._preprocess, self._size, batch=AT_ONCE)
        figures = figures_of(found, self._val)
        return Validation(figures.map50_95, {"OKS-mAP@50": figures.map50})


def true_boxes(split: PoseSplit) -> list[FoundPoses]:
    """Every labelled object of the split with its box, and no point found yet."""
    return [
        FoundPoses(p.xyxy[w], np.zeros(w.sum(), np.int64), np.ones(w.sum(), np.float32), np.zeros_like(p.points[w]))
        for p, w in ((poses, poses.labelled) for poses in split.boxes)
    ]


def in_crops(
    run: Run,
    found: Sequence[FoundPoses],
    split: PoseSplit,
    preprocess: Preprocess,
    size: tuple[int, int],
    *,
    batch: int = 1,
) -> list[FoundPoses]:
    """What was found in each image of `split`, with the points where `run` sees them in crops of the boxes.

    A score is that of the box times the mean of its points' highest values in the heat maps.

    Args:
        run: (b, 3, h, w) float32 -> heat maps (b, K, h / 4, w / 4) float32, of at most `batch` crops.
        found: of each image, boxes in its pixels.
        split: the images.
        preprocess: of the crops.
        size: (h, w).
        batch: crops of a call.
    """
    answers = []
    for at, these in enumerate(found):
        if not len(these.xyxy):
            answers.append(these)
            continue
        way = ways(torch.from_numpy(these.xyxy), size)
        image = torch.from_numpy(split.images[at : at + 1]).expand(len(way), -1, -1, -1)
        inputs = preprocess.tensor(cropped(image, way, size)).contiguous().numpy()
        maps = np.concatenate([run(inputs[start : start + batch]) for start in range(0, len(inputs), batch)])
        places, values = peaks(torch.from_numpy(maps))
        confidence = values.clamp(0, 1)
        points = torch.cat([placed(places, way), confidence[..., None]], dim=2).numpy()
        scores = (these.scores * confidence.mean(dim=1).numpy()).astype(np.float32)
        order = np.argsort(-scores, kind="stable")
        answers.append(FoundPoses(these.xyxy[order], these.classes[order], scores[order], points[order]))
    return answers


def enlarged(found: Sequence[FoundPoses], factor: float) -> list[FoundPoses]:
    """The same in images `factor` times as large."""
    by, plain = np.array([factor, factor, 1.0], np.float32), np.float32(factor)
    return [replace(these, xyxy=these.xyxy * plain, points=these.points * by) for these in found]


def trained(objective: CropObjective, points: int, layers: int, recipe: Recipe, folder: Path) -> nn.Module:
    """The network of `folder` for so many points; trained where there is none yet."""
    path = folder / "weights.safetensors"
    torch.manual_seed(recipe.seed)
    network = SimpleBaseline(points, layers)
    if path.exists():
        network.load_state_dict(load_tensors(path)[0])
        return network.eval()
    result = train(network, objective, recipe, validates="last")
    story = {"epochs": len(result.curve), "seconds": result.seconds, "val": result.accuracy, **result.details}
    click.echo(f"{layers} layers, {objective.train_examples} objects: {story}", err=True)
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(path, network.state_dict(), story)
    return network


def file_of(
    network: nn.Module, objective: CropObjective, deployment: Deployment, folder: Path, in_float: str
) -> MeasureRequest:
    """The network as a file of `deployment`, with int8 ranges of training crops."""
    crops = torch.cat(list(random_inputs(objective, CALIBRATION_CROPS))).contiguous().numpy()
    model = export_onnx(network, objective.input, folder / "model.onnx", 1)
    return prepare_all(model, [deployment], folder, crops, in_float)[0]


def detector_without_points(bundle: Path) -> Architecture:
    """Raises `UserError` where the bundle's network is not of the space `pose`."""
    source = read_description(bundle / NETWORK).source
    if not isinstance(source, Architecture) or source.space != "pose":
        raise UserError(f"'{bundle}' has no network of the space pose", "give a bundle of `nas search --task pose`")
    return detector_of(source)


def _size_of(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    return int(rows), int(columns)


@click.command()
@click.argument("bundle")
@click.option("--data", required=True, help="As of `nas search --task pose`.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), required=True, help="Of the training.")
@click.option("--layers", type=click.Choice([str(n) for n in BLOCKS]), default="10", show_default=True)
@click.option("--crop", default="128x96", show_default=True, help="Rows x columns, multiples of 32.")
@click.option("--changes", default=1.0, show_default=True, help="Scales and turns in training, by the published ones.")
@click.option(
    "--flip/--no-flip", default=True, help="Whether a mirror image is one: not of `experiments.stick_figures`."
)
@click.option("--lr", default=RECIPE.optimizer.lr, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--max-resolution", default=640, show_default=True, help="Largest side that images are kept at.")
@click.option("--val-only", is_flag=True, help="Train, print the validation figures, and do not look at test images.")
def main(
    bundle: str, data: str, out: Path, minutes: float, layers: str, crop: str, changes: float, flip: bool, lr: float,
    seed: int, max_resolution: int, val_only: bool,
) -> None:  # fmt: skip
    """A bundle beside a detector with a network for crops."""
    size, loaded = _size_of(crop), load_pose(data, max_resolution=max_resolution)
    loaded = replace(loaded, flip_ok=loaded.flip_ok and flip)
    recipe = RECIPE.changed(time_limit_s=60 * minutes, optimizer={"lr": lr}, seed=seed)
    objective = CropObjective(loaded, size, changes)
    network = trained(objective, len(loaded.skeleton), int(layers), recipe, out)
    if val_only:
        return
    predictor = Predictor.open(bundle)
    deployment = predictor.receipt.deployment
    found, split = found_in(predictor, loaded)
    factor = loaded.test.resolution / split.resolution
    objects = float(np.mean([poses.labelled.sum() for poses in split.boxes]))
    with TemporaryDirectory(prefix="nas-top-down-") as temporary:
        folder = Path(temporary)
        crops = file_of(network, objective, deployment, new_folder(folder / "crops"), "last layer")
        run = load_runtime(deployment.runtime).load(crops.path, deployment).run

        def seen(boxes: Sequence[FoundPoses]) -> list[FoundPoses]:
            poses = in_crops(run, boxes, loaded.test, loaded.preprocess, size)
            return enlarged(poses, 1 / factor)

        detector = detector_without_points(predictor.folder)
        ours = MeasureRequest(predictor.folder / predictor.receipt.model, deployment)
        requests = [ours, deploy_untrained(detector, [deployment], new_folder(folder / "detector"), 0, (1,))[0], crops]
        whole, boxes_alone, each = (m.p50_ms for m in measure(requests, sessions=3))
        rows = {
            bundle: Row(found, split, milliseconds(whole)),
            f"SimpleBaseline-{layers} in the boxes found": Row(
                seen(enlarged(found, factor)), split, milliseconds(boxes_alone + objects * each)
            ),
            f"SimpleBaseline-{layers} in the true boxes": Row(
                seen(true_boxes(loaded.test)), split, milliseconds(objects * each)
            ),
            "mean pose in the boxes found": Row(
                in_boxes_found(found, mean_pose(loaded.train)), split, milliseconds(boxes_alone)
            ),
        }
    click.echo(f"{objects:.2f} objects an image; detector {boxes_alone:.3f} ms, each crop {each:.3f} ms", err=True)
    show(rows)


if __name__ == "__main__":
    main()
