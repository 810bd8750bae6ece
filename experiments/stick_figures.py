"""Rendered stick figures with the 17 points of COCO's persons: synthetic data for tests and for experiments.

They are unlimited, and everything about them is known; they say nothing about photographs. Left and right limbs have
different colours, so that a picture tells which is which; so a mirror image shows no figure of this kind, and has to be
kept out of trainings (`--no-flip`). Figures are turned, bent and partly hidden by clutter.

    python -m experiments.stick_figures FOLDER --train 2000 --val 250 --test 500

writes a folder in COCO's layout for `nas search --task pose --data FOLDER`.
"""

import json
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from nas.data.portable import PADDING
from nas.tasks.pose.data import Poses, PoseSplit, Skeleton
from nas.tasks.pose.data.skeleton import COCO_SIGMAS, mirror_of
from nas.tasks.pose.data.values import AREA_OF_BOX

NAMES = tuple(COCO_SIGMAS)
LIMBS = (
    (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10),
    (0, 1), (0, 2), (1, 3), (2, 4),
)  # fmt: skip
SKELETON = Skeleton(
    names=NAMES, limbs=LIMBS, sigmas=tuple(COCO_SIGMAS.values()), mirror=mirror_of(NAMES), assumed=False
)
_LEFT, _RIGHT, _MIDDLE = (60, 110, 235), (235, 90, 50), (245, 225, 120)
HEIGHTS = (0.3, 0.8)
"""Range of a figure's height, as a share of the picture's."""
MOST_OVERLAP = 0.3
"""Figures whose boxes overlap by a larger share of the smaller one are drawn anew."""


def figures(count: int, seed: int, size: int = 128, most: int = 2) -> PoseSplit:
    """`count` square pictures of `size` pixels with 1 to `most` figures each; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    pictures = [picture(rng, size, int(rng.integers(1, most + 1))) for _ in range(count)]
    images = np.stack([image for image, _ in pictures]) if pictures else np.empty((0, size, size, 3), np.uint8)
    extents = np.full((count, 2), size, np.int64)
    return PoseSplit(images, tuple(poses for _, poses in pictures), extents, skeleton=SKELETON)


def picture(rng: np.random.Generator, size: int, people: int) -> tuple[NDArray[np.uint8], Poses]:
    """(size, size, 3) uint8 with up to `people` figures that do not cover each other, and their poses."""
    image = Image.fromarray(rng.integers(PADDING - 40, PADDING + 40, (size, size, 3)).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(6):  # lines that are no limbs
        pen.line(tuple(rng.uniform(0, size, 4)), fill=_grey(rng), width=int(rng.integers(1, 4)))
    boxes: list[NDArray[np.float64]] = []
    points: list[NDArray[np.float64]] = []
    for _ in range(10 * people):
        if len(points) == people:
            break
        figure = _figure(rng, size)
        box = _box(figure, size)
        if all(_overlap(box, other) <= MOST_OVERLAP for other in boxes):
            _draw(pen, figure, size)
            boxes.append(box)
            points.append(figure)
    hidden = _occlude(rng, pen, points, size)
    return np.asarray(image), _poses(boxes, points, hidden, size)


def _figure(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """(17, 2) places of the points of a random figure, in pixels; some may lie outside the picture."""
    height = size * rng.uniform(*HEIGHTS)
    lean = rng.uniform(-0.5, 0.5)
    down = np.array([np.sin(lean), np.cos(lean)])
    left = np.array([np.cos(lean), -np.sin(lean)])  # who looks at us has the left hand at our right
    if rng.random() < 0.5:  # seen from behind
        left = -left
    width = height * rng.uniform(0.08, 0.13)

    def turned(vector: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
        cos, sin = np.cos(angle), np.sin(angle)
        return np.array([cos * vector[0] - sin * vector[1], sin * vector[0] + cos * vector[1]])

    neck = rng.uniform(0.2 * size, 0.8 * size, 2) - down * height * 0.25
    hip = neck + down * height * 0.3
    head = neck - down * height * 0.09
    found = np.zeros((17, 2))
    found[0] = head
    for point, (across, up) in enumerate(((0.25, 0.03), (-0.25, 0.03), (0.5, 0.01), (-0.5, 0.01)), start=1):
        found[point] = head + left * width * across - down * height * up
    for side, sign in ((0, 1.0), (1, -1.0)):
        shoulder, pelvis = neck + sign * left * width, hip + sign * left * width * 0.7
        upper = turned(down, rng.uniform(-1.8, 1.8))
        elbow = shoulder + upper * height * 0.17
        thigh = turned(down, rng.uniform(-0.7, 0.7))
        knee = pelvis + thigh * height * 0.22
        found[5 + side], found[7 + side], found[11 + side], found[13 + side] = shoulder, elbow, pelvis, knee
        found[9 + side] = elbow + turned(upper, rng.uniform(-1.4, 1.4)) * height * 0.15
        found[15 + side] = knee + turned(thigh, rng.uniform(-0.6, 0.6)) * height * 0.2
    return found


def _box(points: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """(4,) around what is drawn of the points, inside the picture."""
    margin = 0.03 * (points[:, 1].max() - points[:, 1].min())
    edges = np.concatenate([points.min(axis=0) - margin, points.max(axis=0) + margin])
    return np.asarray(np.clip(edges, 0, size), np.float64)


def _overlap(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    smaller = min(float(np.prod(box[2:] - box[:2])) for box in (one, other))
    return float(np.prod(np.maximum(sides, 0)) / max(smaller, 1.0))


def _draw(pen: ImageDraw.ImageDraw, points: NDArray[np.float64], size: int) -> None:
    width = max(1, size // 64)
    for a, b in LIMBS:
        sides = {NAMES[point].split("_")[0] for point in (a, b)}
        colour = _LEFT if sides == {"left"} else _RIGHT if sides == {"right"} else _MIDDLE
        pen.line((*points[a], *points[b]), fill=colour, width=width)
    radius = 1.5 * width
    for point, name in enumerate(NAMES):
        colour = _LEFT if name.startswith("left") else _RIGHT if name.startswith("right") else _MIDDLE
        x, y = points[point]
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _occlude(
    rng: np.random.Generator, pen: ImageDraw.ImageDraw, figures: list[NDArray[np.float64]], size: int
) -> list[NDArray[np.bool_]]:
    """Cover a part of some figures by a box; (17,) for each, which of its points are hidden."""
    covers = []
    for points in figures:
        if rng.random() < 0.3:
            middle, half = points[rng.integers(17)], rng.uniform(0.03, 0.08, 2) * size
            covers.append(np.concatenate([middle - half, middle + half]))
            pen.rectangle(tuple(covers[-1]), fill=_grey(rng))
    return [_covered(points, covers) for points in figures]


def _covered(points: NDArray[np.float64], covers: list[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """(17,) whether each point lies in one of the boxes (4,)."""
    found = np.zeros(len(points), np.bool_)
    for cover in covers:
        found |= ((points >= cover[:2]) & (points <= cover[2:])).all(axis=1)
    return found


def _poses(
    boxes: list[NDArray[np.float64]], points: list[NDArray[np.float64]], hidden: list[NDArray[np.bool_]], size: int
) -> Poses:
    xyxy = np.array(boxes, np.float32).reshape(-1, 4)
    labelled = np.zeros((len(points), 17, 3), np.float32)
    for own, places, covered in zip(labelled, points, hidden, strict=True):
        inside = np.asarray(((places >= 0) & (places <= size)).all(axis=1))
        own[:, :2] = np.where(inside[:, None], places, 0)
        own[:, 2] = np.where(inside, np.where(covered, 1, 2), 0)
    area = AREA_OF_BOX * np.prod(xyxy[:, 2:] - xyxy[:, :2], axis=1)
    keep = (xyxy[:, 2:] - xyxy[:, :2]).min(axis=1, initial=1e9) > 2
    return Poses(
        xyxy[keep], np.zeros(int(keep.sum()), np.int64), np.zeros(int(keep.sum()), np.bool_), labelled[keep],
        area[keep].astype(np.float32),
    )  # fmt: skip


def _grey(rng: np.random.Generator) -> tuple[int, int, int]:
    level = int(rng.integers(30, 220))
    return level, level, level


def coco_document(split: PoseSplit, suffix: str = "png") -> dict[str, object]:
    """The annotations of `split` as COCO writes them; image i is `i.png`."""
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for number, (poses, (rows, columns)) in enumerate(zip(split.boxes, split.extents, strict=True), 1):
        images.append({"id": number, "file_name": f"{number - 1}.{suffix}", "width": int(columns), "height": int(rows)})
        for at in range(len(poses)):
            x0, y0, x1, y1 = (float(edge) for edge in poses.xyxy[at])
            annotations.append(
                {
                    "id": len(annotations) + 1, "image_id": number, "category_id": 1, "iscrowd": int(poses.crowd[at]),
                    "bbox": [x0, y0, x1 - x0, y1 - y0], "area": float(poses.area[at]),
                    "keypoints": poses.points[at].astype(float).ravel().tolist(),
                    "num_keypoints": int((poses.points[at, :, 2] > 0).sum()),
                }
            )  # fmt: skip
    skeleton = split.skeleton
    category = {
        "id": 1, "name": "person", "keypoints": list(skeleton.names), "sigmas": list(skeleton.sigmas),
        "skeleton": [[a + 1, b + 1] for a, b in skeleton.limbs],
    }  # fmt: skip
    return {"images": images, "annotations": annotations, "categories": [category]}


def write_coco_figures(folder: Path, counts: dict[str, int], size: int = 128, seed: int = 0, most: int = 2) -> Path:
    """`folder`/images/`split` with pictures and `folder`/annotations/person_keypoints_`split`.json."""
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    for number, (name, count) in enumerate(counts.items()):
        split = figures(count, 1000 * seed + number, size, most)
        images = folder / "images" / name
        images.mkdir(parents=True, exist_ok=True)
        for i, image in enumerate(split.images[:]):
            Image.fromarray(image).save(images / f"{i}.png")
        text = json.dumps(coco_document(split))
        (folder / "annotations" / f"person_keypoints_{name}.json").write_text(text, encoding="utf-8")
    return folder


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--train", default=2000, show_default=True, help="Training images.")
@click.option("--val", default=250, show_default=True, help="Validation images.")
@click.option("--test", default=500, show_default=True, help="Test images.")
@click.option("--size", default=192, show_default=True, help="Rows and columns of an image.")
@click.option("--seed", default=0, show_default=True)
def main(folder: Path, train: int, val: int, test: int, size: int, seed: int) -> None:
    """Write synthetic pose data into FOLDER, in COCO's layout."""
    write_coco_figures(folder, {"train": train, "val": val, "test": test}, size, seed)
    click.echo(f"{train + val + test} rendered pictures in {folder}")


if __name__ == "__main__":
    main()
