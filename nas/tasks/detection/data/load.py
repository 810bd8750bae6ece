"""A detection data set from a folder or an archive, whatever its format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import content_of, contents_of_files
from nas.data.decode import IMAGE_SUFFIXES, picture_size, run_in_threads, usual_size
from nas.data.images import FITTED_BYTES, SPLITS, Preprocess, SplitName, histogram
from nas.data.portable import PADDING
from nas.data.store import Wanted, stored_images, too_large_for_memory
from nas.data.stored import Images
from nas.data.tree import ARCHIVE_SUFFIXES, SPLIT_NAMES, Tree, read_archive, read_folder
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated, Annotations, Mended
from nas.tasks.detection.data.coco import read_coco
from nas.tasks.detection.data.letterbox import Finding, Frame, decode_letterboxed, place
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
    """Load images with boxes, with three splits (by `nas.tasks.detection.data.splits.divide`): into memory, or, where
    they are too many for it, into the store on disk.

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


Place = Callable[[Annotated, Frame], tuple[Boxes, list[Finding]]]
"""The objects of a picture in the pixels of its letterboxed image, and what was mended."""


def load_annotated(
    path: str | Path, annotations: Annotations, place: Place, *, seed: int, max_resolution: int
) -> DetectionData:
    """The pictures of a data set that was read from `path`, with three splits; see `load_detection`.

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
    stored = too_large_for_memory(len(every) * size * size * 3)
    mended = Mended()
    decoded = {split: _decode(splits[split], size, place, mended, str(path) if stored else None) for split in SPLITS}
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


def _decode(
    items: Sequence[Annotated], size: int, place: Place, mended: Mended, stored_for: str | None
) -> DetectionSplit:
    """The images of `items` and their objects. `stored_for`: what they are, for people, where they go to the disk."""
    sources = np.array([item.content for item in items], np.uint64)

    def make(start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        return _letterboxed(items[start:stop], size)

    if stored_for is None or not items:
        images: Images
        images, packed = make(0, len(items))
    else:
        identity = f"letterboxed {content_of(sources.tobytes())}"
        images, packed = stored_images(Wanted(source=stored_for, identity=identity, images=len(items), side=size), make)
    frames = [Frame.from_int(int(number), size) for number in packed]
    boxes: list[Boxes] = []
    for item, frame in zip(items, frames, strict=True):
        found, findings = place(item, frame)
        boxes.append(found)
        mended.extend(findings)
    extents = np.array([frame.extent for frame in frames], np.int64).reshape(-1, 2)
    return DetectionSplit(images, tuple(boxes), extents, sources)


def _letterboxed(items: Sequence[Annotated], size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The images of `items`, (n, size, size, 3), and how they lie in them, (n,), see `Frame.to_int`."""
    images = np.empty((len(items), size, size, 3), np.uint8)
    packed = np.empty(len(items), np.uint64)

    def work(index: int) -> None:
        image = decode_letterboxed(items[index].read, items[index].name, size)
        images[index], packed[index] = image.pixels, image.to_int()

    run_in_threads(work, len(items))
    return images, packed


def _fit(train: DetectionSplit) -> Preprocess:
    """Mean and standard deviation of the pictures alone, or of every so many of them, as `Preprocess.fit`."""
    step = -(-len(train) * train.resolution**2 * 3 // FITTED_BYTES)
    if step > 1:
        train = train.take(range(0, len(train), step))
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
