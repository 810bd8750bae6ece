"""A detection data set from a folder or an archive, whatever its format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import contents_of_files
from nas.data.decode import IMAGE_SUFFIXES, ensure_fits, picture_size, run_in_threads, usual_size
from nas.data.images import SPLITS, Preprocess, SplitName, histogram
from nas.data.portable import PADDING
from nas.data.tree import ARCHIVE_SUFFIXES, SPLIT_NAMES, Tree, read_archive, read_folder
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated, Annotations, Mended
from nas.tasks.detection.data.coco import read_coco
from nas.tasks.detection.data.letterbox import Finding, Letterboxed, decode_letterboxed, place
from nas.tasks.detection.data.splits import divide
from nas.tasks.detection.data.values import Boxes, DetectionData, DetectionSplit
from nas.tasks.detection.data.voc import read_voc
from nas.tasks.detection.data.yolo import read_yolo

MAX_RESOLUTION = 416
STRIDE = 32
"""Resolutions are multiples of the coarsest level's stride."""

_SIZE_SAMPLE = 64
"""Headers read to find the usual size of a picture."""
_SUFFIXES = (*IMAGE_SUFFIXES, ".json", ".txt", ".xml", ".yaml", ".yml")
_STRUCTURE = {*SPLIT_NAMES, "images", "labels", "annotations", "jpegimages", "imagesets"}
LAYOUTS = (
    "give COCO json (annotations/instances_train.json, images/train/*.jpg), a YOLO folder (images/train/*.jpg, "
    "labels/train/*.txt) or Pascal VOC (Annotations/*.xml, JPEGImages/*.jpg)"
)


def load_detection(path: str | Path, *, seed: int = 0, max_resolution: int = MAX_RESOLUTION) -> DetectionData:
    """Load images with boxes into memory, with three splits (by `nas.tasks.detection.data.splits.divide`).

    Args:
        path: a folder, or a tar or zip of one, in one of three formats, which is recognised: COCO json, YOLO, Pascal
            VOC (`docs/detection-data.md`). One enclosing folder may be around it.
        seed: of the held-out splits.
        max_resolution: images are letterboxed to the multiple of 32 at or below; to a smaller one where that holds
            the largest image.

    Raises:
        UserError: a missing path, an unknown format, or annotations or images that cannot be used (named).
    """
    tree = open_tree(path)
    return load_annotated(path, _read(tree, str(path)), place, seed=seed, max_resolution=max_resolution)


Place = Callable[[Annotated, Letterboxed], tuple[Boxes, list[Finding]]]
"""The objects of a picture in the pixels of its letterboxed image, and what was mended."""


def load_annotated(
    path: str | Path, annotations: Annotations, place: Place, *, seed: int, max_resolution: int
) -> DetectionData:
    """The pictures of a data set that was read from `path`, in memory, with three splits; see `load_detection`.

    Args:
        path: for names and messages.
        annotations: of a reader.
        place: where objects come to lie.
        seed: of the held-out splits.
        max_resolution: see `load_detection`.
    """
    cap = max_resolution // STRIDE * STRIDE
    if cap < STRIDE:
        raise UserError(f"images cannot be stored at {max_resolution} px", f"the smallest resolution is {STRIDE}")
    name = Path(path).expanduser().resolve().name
    splits, how = divide(name, _with_contents(annotations.splits), len(annotations.classes), seed)

    every = list(chain.from_iterable(splits.values()))
    size = _resolution(every, cap)
    ensure_fits(len(every) * size * size * 3, f"{len(every)} images at {size} px")
    mended = Mended()
    decoded = {split: _decode(splits[split], size, place, mended) for split in SPLITS}
    train = decoded["train"]
    notes = (f"read as {annotations.form}", *how, *annotations.notes, *mended.notes())
    for split, data in decoded.items():
        if not any(np.any(~boxes.crowd) for boxes in data.boxes):
            left_out = f" ({mended.notes()[0]})" if mended.notes() else ""
            raise UserError(
                f"data set {name!r} has no usable boxes in {split}{left_out}", "correct the annotations, or add some"
            )
    return DetectionData(
        name=name,
        classes=annotations.classes,
        train=train,
        val=decoded["val"],
        test=decoded["test"],
        native_resolution=size,
        preprocess=_fit(train),
        notes=(*notes, *_unlearnable(annotations.classes, train)),
        picture_size=usual_size([picture_size(i.read, i.name) for i in every[:: max(1, len(every) // _SIZE_SAMPLE)]]),
    )


def open_tree(path: str | Path, layouts: str = LAYOUTS) -> Tree:
    """The files of the data set at `path`, without enclosing folders.

    Raises `UserError` where there is no such folder or archive, or no image in it; `layouts` is the hint then.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        tree = read_folder(place, _SUFFIXES)
    elif not place.is_file():
        raise UserError(f"no such file or folder: '{path}'", "check the path: " + layouts)
    elif place.name.lower().endswith(ARCHIVE_SUFFIXES):
        tree = read_archive(place, _SUFFIXES)
    else:
        raise UserError(f"'{path}' is neither a folder nor an archive ({', '.join(ARCHIVE_SUFFIXES)})", layouts)
    if not any(parts[-1].lower().endswith(IMAGE_SUFFIXES) for parts in tree.files):
        raise UserError(f"no images in '{path}' (looked for {', '.join(IMAGE_SUFFIXES)})", layouts)
    # Enclosing folders go: one called "test-sets" must not look like a split.
    while len(tops := {parts[0] for parts in tree.files}) == 1:
        top = tops.pop()
        if top.lower() in _STRUCTURE or (top,) in tree.files:
            break
        tree = tree.below(top)
    return tree


def _read(tree: Tree, path: str) -> Annotations:
    for read in (read_coco, read_yolo, read_voc):
        found = read(tree)
        if found is not None:
            return found
    raise UserError(f"no annotations of training images in '{path}'", LAYOUTS)


def _with_contents(splits: Mapping[SplitName, Sequence[Annotated]]) -> dict[SplitName, list[Annotated]]:
    """The same pictures, each with its content."""
    found: dict[SplitName, list[Annotated]] = {}
    for split, items in splits.items():
        contents = contents_of_files([item.read for item in items], [item.name for item in items])
        found[split] = [replace(item, content=int(c)) for item, c in zip(items, contents, strict=True)]
    return found


def _resolution(items: Sequence[Annotated], cap: int) -> int:
    """The smallest multiple of STRIDE that holds the largest picture, at most `cap`."""
    size = STRIDE
    for item in items:  # mostly, the first picture ends it
        size = max(size, -(-max(picture_size(item.read, item.name)) // STRIDE) * STRIDE)
        if size >= cap:
            return cap
    return size


def _decode(items: Sequence[Annotated], size: int, place: Place, mended: Mended) -> DetectionSplit:
    images = np.empty((len(items), size, size, 3), np.uint8)
    extents = np.empty((len(items), 2), np.int64)
    boxes: list[Boxes | None] = [None] * len(items)
    findings: list[list[Finding]] = [[] for _ in items]

    def work(index: int) -> None:
        item = items[index]
        image = decode_letterboxed(item.read, item.name, size)
        images[index], extents[index] = image.pixels, image.extent
        boxes[index], findings[index] = place(item, image)

    run_in_threads(work, len(items))
    mended.extend(chain.from_iterable(findings))
    sources = np.array([item.content for item in items], np.uint64)
    return DetectionSplit(images, tuple(found for found in boxes if found is not None), extents, sources)


def _fit(train: DetectionSplit) -> Preprocess:
    """Mean and standard deviation of the pictures alone."""
    counts = histogram(train.images)
    counts[:, PADDING] -= len(train) * train.resolution**2 - int(train.extents.prod(axis=1).sum())
    return Preprocess.of_histogram(counts)


def _unlearnable(classes: Sequence[str], train: DetectionSplit) -> tuple[str, ...]:
    seen: NDArray[np.int64] = np.concatenate([boxes.classes[~boxes.crowd] for boxes in train.boxes])
    counts = np.bincount(seen, minlength=len(classes))
    absent = [name for name, count in zip(classes, counts, strict=True) if not count]
    if not absent:
        return ()
    some = ", ".join(map(repr, absent[:5])) + (", ..." if len(absent) > 5 else "")
    return (f"classes without boxes in train cannot be learned: {len(absent)} of {len(classes)} ({some})",)
