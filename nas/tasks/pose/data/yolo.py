"""YOLO pose labels (Jocher et al., https://docs.ultralytics.com/datasets/pose): boxes with points, a line each.

Lines are `class x_centre y_centre width height` and then x, y and, where `kpt_shape` of data.yaml says so, a flag for
each point, all in fractions of the image. `flip_idx` says which point each becomes in a mirror image.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from nas.data.originals import Parts
from nas.data.tree import Tree
from nas.errors import UserError
from nas.tasks.detection.data.annotations import boxes_array, numbers
from nas.tasks.detection.data.yolo import FARTHEST, check_class, load_yaml, read_labels, text_of
from nas.tasks.pose.data.annotations import PoseAnnotated, PoseAnnotations
from nas.tasks.pose.data.skeleton import Skeleton, is_mirror, mirror_of, sigmas_of

_SHAPE_HINT = "write kpt_shape: [points, 3] (x, y and a flag) or [points, 2] into data.yaml"


def read_yolo_poses(tree: Tree) -> PoseAnnotations | None:
    """The data set in `tree` if its images have label files, else None.

    Raises:
        UserError: what `nas.tasks.detection.data.yolo.read_yolo` refuses, no `kpt_shape`, several classes, or lines
            and `flip_idx` that do not fit it.
    """
    shape = _Shape()
    found = read_labels(tree, partial(_annotated, tree, shape))
    if found is None:
        return None
    if len(found.classes) > 1:
        raise UserError(
            f"data.yaml names the classes {', '.join(found.classes)}, and a pose network has one kind of object",
            "keep the labels of one class",
        )
    _, _, skeleton = shape.of(tree)
    return PoseAnnotations(
        form="YOLO pose folder", classes=found.classes, splits=found.splits, notes=found.notes, skeleton=skeleton
    )


class _Shape:
    """What data.yaml says of the points, read once, and not before a label file was found."""

    def __init__(self) -> None:
        self._known: tuple[int, int, Skeleton] | None = None

    def of(self, tree: Tree) -> tuple[int, int, Skeleton]:
        """Number of points, numbers of each, and the skeleton."""
        if self._known is None:
            self._known = _shape_of(tree)
        return self._known


def _shape_of(tree: Tree) -> tuple[int, int, Skeleton]:
    for parts in sorted(tree.files):
        if parts[-1].lower().endswith((".yaml", ".yml")) and len(parts) == 1:
            document = load_yaml(tree, parts, parts[0])
            if isinstance(document, dict) and "kpt_shape" in document:
                return _read_shape(document, parts[0])
    raise UserError("no data.yaml of this YOLO folder has kpt_shape, so its labels are boxes alone", _SHAPE_HINT)


def _read_shape(document: Mapping[str, object], where: str) -> tuple[int, int, Skeleton]:
    given = document["kpt_shape"]
    found = numbers(given) if isinstance(given, list) else []
    if len(found) != 2 or not found[0].is_integer() or not 1 <= found[0] <= 1000 or found[1] not in (2, 3):
        raise UserError(f"kpt_shape in '{where}' is {given!r}", _SHAPE_HINT)
    count, values = int(found[0]), int(found[1])
    names = _names(document, count)
    mirror = mirror_of(names)
    if "flip_idx" in document:
        flip = document["flip_idx"]
        order = numbers(flip) if isinstance(flip, list) else []
        if not all(number.is_integer() for number in order) or not is_mirror([int(n) for n in order], count):
            raise UserError(
                f"flip_idx in '{where}' is no permutation of 0 to {count - 1} that swaps points in pairs",
                "give for each point the number of the one that it becomes in a mirror image",
            )
        mirror = tuple(int(number) for number in order)
    sigmas, assumed = sigmas_of(names)
    return count, values, Skeleton(names=names, limbs=(), sigmas=sigmas, mirror=mirror, assumed=assumed)


def _names(document: Mapping[str, object], count: int) -> tuple[str, ...]:
    """`kpt_names` of data.yaml where they fit; with 17 points and a class `person` alone nobody has said they are
    COCO's."""
    given = document.get("kpt_names")
    if isinstance(given, dict) and len(given) == 1:  # by class
        given = next(iter(given.values()))
    if isinstance(given, list) and len(set(map(str, given))) == count == len(given):
        return tuple(map(str, given))
    return tuple(f"point {number}" for number in range(1, count + 1))


def _annotated(
    tree: Tree, shape: _Shape, image: Parts, label: Parts | None, names: tuple[str, ...] | None
) -> PoseAnnotated:
    count, values, _ = shape.of(tree)
    boxes, points = [], []
    if label is not None:
        where = "/".join(label)
        for number, line in enumerate(text_of(tree, label, where).splitlines(), 1):
            if line.strip():
                box, own = _line(line.split(), f"line {number} of '{where}'", names, count, values)
                boxes.append(box)
                points.append(own)
    return PoseAnnotated(
        name="/".join(image),
        read=tree.files[image],
        xyxy=boxes_array(boxes),
        classes=np.zeros(len(boxes), np.int64),
        crowd=np.zeros(len(boxes), np.bool_),
        relative=True,
        points=np.array(points, np.float64).reshape(len(boxes), count, 3),
        areas=np.full(len(boxes), np.nan),
    )


def _line(
    fields: list[str], where: str, names: tuple[str, ...] | None, count: int, values: int
) -> tuple[list[float], list[list[float]]]:
    """x0 y0 x1 y1, and x, y and flag of each point."""
    if len(fields) != 5 + count * values:
        raise UserError(
            f"{where} has {len(fields)} fields, but kpt_shape: [{count}, {values}] makes {5 + count * values}",
            f"write `class x_centre y_centre width height` and {values} numbers for each point, or correct kpt_shape",
        )
    check_class(fields[0], where, names)
    _, x, y, w, h, *rest = numbers(fields)
    rows = [rest[at : at + values] for at in range(0, len(rest), values)]
    if any(FARTHEST < abs(value) < float("inf") for value in (x, y, w, h, *(v for row in rows for v in row[:2]))):
        raise UserError(f"{where} has coordinates in pixels", "write them in fractions of the image")
    # Without a flag, 0 0 is how those who write such files leave a point out.
    points = [row if values == 3 else [*row, 0.0 if row == [0.0, 0.0] else 2.0] for row in rows]
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2], points
