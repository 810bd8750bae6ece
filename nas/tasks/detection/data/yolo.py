"""YOLO folders (Jocher et al., https://docs.ultralytics.com/datasets/detect): one text file of labels per image.

`images/train/a.jpg` has its labels in `labels/train/a.txt`, `train/images/a.jpg` in `train/labels/a.txt`; a text file
beside the image does as well. Lines are `class x_centre y_centre width height`, or `class x y x y x y ...` (a polygon),
in fractions of the image as it is shown.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import yaml

from nas.data.decode import IMAGE_SUFFIXES
from nas.data.images import SplitName
from nas.data.originals import Parts
from nas.data.tree import Tree, split_of_folders
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated, Annotations, Mended, boxes_array, numbers, repeated

MOST_CLASSES = 10_000  # without a list of names, a class beyond is a mistake, not so many classes
FARTHEST = 2.0  # a coordinate beyond is no fraction
LINE_HINT = (
    "write `class x_centre y_centre width height` in fractions of the image, or a polygon `class x y x y x y ...`"
)


def read_yolo(tree: Tree) -> Annotations | None:
    """The data set in `tree` if its images have label files, else None.

    Classes are `names` of data.yaml (or the lines of classes.txt); without, "class 0" to the largest that occurs.
    An image without a label file has no objects. A polygon becomes the box around it.

    Raises:
        UserError: no training images, names or a line that cannot be read, a class without name, pixels as coordinates.
    """
    return read_labels(tree, partial(_annotated, tree))


Annotate = Callable[[Parts, Parts | None, tuple[str, ...] | None], Annotated]
"""`(image, labels, names)` -> the picture with its objects; `labels`: its label file; `names`: of the classes."""


def read_labels(tree: Tree, annotate: Annotate) -> Annotations | None:
    """The data set in `tree` if its images have label files, which `annotate` reads; see `read_yolo`."""
    images = sorted(parts for parts in tree.files if parts[-1].lower().endswith(IMAGE_SUFFIXES))
    labels = {parts: label for parts in images if (label := _label_of(parts, tree)) is not None}
    if any("images" in parts[:-1] for parts in labels):
        images = [parts for parts in images if "images" in parts[:-1]]
    if not labels:
        return None
    mended = Mended()
    texts = {parts for parts in tree.files if parts[-1].lower().endswith(".txt") and "labels" in parts[:-1]}
    stray = sorted("/".join(parts) for parts in texts - set(labels.values()) if parts[-1] != "classes.txt")
    mended.add_all("label files without an image are left out", stray)
    mended.add_all("images without a label file have no objects", ["/".join(p) for p in images if p not in labels])

    names = _names(tree)
    found: dict[SplitName | None, list[Annotated]] = {}
    for parts in images:
        found.setdefault(split_of_folders(parts[:-1]), []).append(annotate(parts, labels.get(parts), names))
    if "train" not in found:
        given = [split for split in found if split]
        if given:
            raise UserError(
                f"there are images of {given[0]}, but none of train", "put them in images/train/ and labels/train/"
            )
        found = {"train": found.get(None, [])}
    mended.add_all("images in a folder of no split are left out", [item.name for item in found.pop(None, [])])
    if names is None:
        highest = max((int(a.classes.max()) for s in found.values() for a in s if len(a.classes)), default=0)
        names = tuple(f"class {number}" for number in range(highest + 1))
    return Annotations("YOLO folder", names, {s: found[s] for s in found if s is not None}, mended.notes())


def _label_of(image: Parts, tree: Tree) -> Parts | None:
    """Path of the labels of `image`: the innermost folder `images` replaced by `labels`, else beside it."""
    folders, name = image[:-1], image[-1].rsplit(".", 1)[0] + ".txt"
    places = [(*folders, name)]
    if "images" in folders:
        depth = len(folders) - folders[::-1].index("images")
        places.insert(0, (*folders[: depth - 1], "labels", *folders[depth:], name))
    return next((place for place in places if place in tree.files), None)


def _names(tree: Tree) -> tuple[str, ...] | None:
    """Class names: of data.yaml, or else of classes.txt; None where there is neither."""
    lists: dict[str, tuple[str, ...]] = {}
    for parts in sorted(tree.files):
        if parts[-1].lower().endswith((".yaml", ".yml")) and len(parts) == 1:
            where = "/".join(parts)
            document = load_yaml(tree, parts, where)
            if isinstance(document, dict) and "names" in document:
                lists[where] = _names_of_yaml(document, where)
    if not lists:
        for parts in (("classes.txt",), ("labels", "classes.txt")):
            if parts in tree.files:
                where = "/".join(parts)
                lines = [line.strip() for line in text_of(tree, parts, where).splitlines()]
                lists[where] = tuple(line for line in lines if line)
    if len(set(lists.values())) > 1:
        first, second, *_ = lists
        raise UserError(f"'{first}' and '{second}' have different class names", "keep the one that is right")
    if not lists:
        return None
    where, names = next(iter(lists.items()))
    if not names:
        raise UserError(f"'{where}' has no class names", "write names: [first, second, ...]")
    if twice := repeated(names):
        raise UserError(f"'{where}' has the class name {twice!r} twice", "give every class a name of its own")
    return names


def load_yaml(tree: Tree, parts: Parts, where: str) -> object:
    text = text_of(tree, parts, where)
    try:
        # BaseLoader makes only texts, lists and dicts: a class called `no` keeps its name, and nothing is constructed.
        document: object = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, RecursionError) as error:
        reason = (str(error).splitlines() or ["it is damaged"])[0]
        raise UserError(
            f"cannot read '{where}': {reason}", "write it as yaml, with `names: [first, second]`"
        ) from error
    return document


def _names_of_yaml(document: Mapping[str, object], where: str) -> tuple[str, ...]:
    given = document["names"]
    hint = "write names: [first, second, ...] or names: {0: first, 1: second, ...}"
    if isinstance(given, dict):
        by_number = {str(key).strip(): value for key, value in given.items()}
        if set(by_number) != {str(number) for number in range(len(by_number))}:
            raise UserError(f"the class numbers in '{where}' are not 0 to {len(by_number) - 1}", hint)
        given = [by_number[str(number)] for number in range(len(by_number))]
    if not isinstance(given, list) or not all(isinstance(name, str) and name.strip() for name in given):
        raise UserError(f"the class names in '{where}' cannot be read", hint)
    count = document.get("nc")
    if count is not None and str(count).strip() != str(len(given)):
        raise UserError(f"'{where}' has {len(given)} names, but nc: {count}", "make both say the same")
    return tuple(name.strip() for name in given)


def text_of(tree: Tree, parts: Parts, where: str) -> str:
    try:
        return tree.files[parts]().decode("utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"cannot read '{where}': it is no text (UTF-8)", "write it again, or remove it") from error


def _annotated(tree: Tree, image: Parts, label: Parts | None, names: tuple[str, ...] | None) -> Annotated:
    boxes: list[list[float]] = []
    classes: list[int] = []
    if label is not None:
        where = "/".join(label)
        for number, line in enumerate(text_of(tree, label, where).splitlines(), 1):
            if line.strip():
                kind, box = _line(line.split(), f"line {number} of '{where}'", names)
                classes.append(kind)
                boxes.append(box)
    return Annotated(
        name="/".join(image),
        read=tree.files[image],
        xyxy=boxes_array(boxes),
        classes=np.array(classes, np.int64),
        crowd=np.zeros(len(classes), np.bool_),
        relative=True,
    )


def _line(fields: list[str], where: str, names: tuple[str, ...] | None) -> tuple[int, list[float]]:
    """Class, and x0 y0 x1 y1 in fractions."""
    if len(fields) != 5 and (len(fields) < 7 or len(fields) % 2 == 0):
        raise UserError(f"{where} has {len(fields)} field{'s' if len(fields) > 1 else ''}", LINE_HINT)
    first, *values = numbers(fields)
    check_class(fields[0], where, names)
    if any(FARTHEST < abs(value) < float("inf") for value in values):
        raise UserError(f"{where} has coordinates in pixels", LINE_HINT)
    if len(values) == 4:
        x, y, w, h = values
        return int(first), [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    points = np.array(values).reshape(-1, 2)
    return int(first), [*points.min(axis=0).tolist(), *points.max(axis=0).tolist()]


def check_class(field: str, where: str, names: tuple[str, ...] | None) -> None:
    """Raises `UserError` where the first field of a line is no number of a class."""
    (first,) = numbers([field])
    most = len(names) if names is not None else MOST_CLASSES
    if not first.is_integer() or not 0 <= first < most:
        raise UserError(
            f"{where} has class {field!r}, which is not declared",
            f"classes are 0 to {most - 1}: add its name to data.yaml, or correct the line",
        )
