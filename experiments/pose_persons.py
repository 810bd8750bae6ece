"""Networks and mean poses beside each other on the same test images, person by person.

`python -m experiments.pose_persons BUNDLE OTHER... --data coco-keypoints/` has each bundle's own file find poses in the
test images and prints OKS-mAP, and for each labelled person the object keypoint similarity (OKS) of the most similar
pose among those found. Beside them stand two that need no network for the points: the mean pose of training in the
boxes that the first bundle finds, and in the true boxes. The first bundle is compared with each of the others by the
mean difference over persons and its standard error. A few dozen photographs tell what a network does with them, and
nothing that could be promised of others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from nas.bundles.predictor import Predictor
from nas.data.processor import read_document
from nas.networks.find import RECEIPT
from nas.tasks.pose.data import PoseData, PoseSplit, load_pose
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.evaluate import figures_of, found_in_runtime
from nas.tasks.pose.floors import in_boxes_found, in_true_boxes, mean_pose
from nas.tasks.pose.oks import similarity
from nas.text import milliseconds


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Poses found in the images of a split."""

    found: Sequence[FoundPoses]
    split: PoseSplit
    p50_ms: str = ""
    """How long an image takes, for people."""


def oks_of_persons(found: Sequence[FoundPoses], split: PoseSplit) -> NDArray[np.float32]:
    """(persons,) float32 in [0, 1]: OKS of the most similar pose found, for each labelled person in order; 0 where
    nothing was found in the image."""
    sigmas = np.asarray(split.skeleton.sigmas, np.float32)
    scores = []
    for these, truth in zip(found, split.boxes, strict=True):
        for points, area in zip(truth.points[truth.labelled], truth.area[truth.labelled], strict=True):
            one = similarity(these.points, points[None], np.asarray([area]), sigmas)
            scores.append(float(one.max(initial=0.0)))
    return np.asarray(scores, np.float32)


def paired(these: NDArray[np.float32], others: NDArray[np.float32]) -> tuple[float, float]:
    """Mean difference over the same persons, and its standard error."""
    differences = these.astype(np.float64) - others
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def found_in(predictor: Predictor, data: PoseData) -> tuple[list[FoundPoses], PoseSplit]:
    """What the bundle's file finds in the test images, and these at its resolution."""
    split = data.for_input("test", predictor.receipt.signature.input)
    batch = predictor.receipt.deployment.batch
    return found_in_runtime(predictor.session.run, split, data.preprocess, batch=batch), split


@click.command()
@click.argument("bundles", nargs=-1, required=True)
@click.option("--data", required=True, help="As of `nas search --task pose`.")
@click.option("--max-resolution", default=640, show_default=True, help="Largest side that images are kept at.")
def main(bundles: tuple[str, ...], data: str, max_resolution: int) -> None:
    loaded = load_pose(data, max_resolution=max_resolution)
    rows: dict[str, Row] = {}
    for bundle in bundles:
        predictor = Predictor.open(bundle)
        latency = read_document(predictor.folder, RECEIPT)["latency_ms"]
        rows[bundle] = Row(*found_in(predictor, loaded), milliseconds(latency["p50"]) if latency else "-")
    first, pose = rows[bundles[0]], mean_pose(loaded.train)
    rows["mean pose in the boxes found"] = Row(in_boxes_found(first.found, pose), first.split)
    rows["mean pose in the true boxes"] = Row(in_true_boxes(first.split, pose), first.split)
    show(rows)


def show(rows: Mapping[str, Row]) -> None:
    """Print a table of all rows, which are of the same images; persons are compared with those of the first row."""
    persons = {name: oks_of_persons(row.found, row.split) for name, row in rows.items()}
    first = next(iter(persons.values()))
    table = Table("", "p50 ms", "OKS-mAP@50:95 %", "OKS-mAP@50 %", f"mean OKS of {len(first)}", "the first minus it")
    for name, row in rows.items():
        figures = figures_of(list(row.found), row.split)
        difference = "" if persons[name] is first else "{:+.3f} +- {:.3f}".format(*paired(first, persons[name]))
        table.add_row(
            name, row.p50_ms, f"{100 * figures.map50_95:.2f}", f"{100 * figures.map50:.2f}",
            f"{persons[name].mean():.3f}", difference,
        )  # fmt: skip
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
