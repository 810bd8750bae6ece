"""The three splits of a classification data set, made from what its source has."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import hold_out
from nas.data.images import ImageData, ImageSplit, Preprocess, RawImages
from nas.data_options import USUAL, DataOptions
from nas.errors import UserError

HOLDOUT_FRACTION = 0.15
"""Share of the training images that becomes a split the source does not have."""
FEW = 10
"""Training images of a class below which it is named, where others have many more."""
UNBALANCED = 5.0
"""Images of the most frequent class by those of the rarest one, from which a reader is told of it."""
SEEN = 0.8
"""Share of a usual picture that is seen, below which a reader is told of it."""
_NAMED = 3
"""Classes that a remark names."""


def complete(name: str, raw: RawImages, seed: int, options: DataOptions = USUAL) -> ImageData:
    """Make the three splits of `ImageData` from what a source has.

    - train, val and test: taken as they are.
    - train and test: `val` is held out of train.
    - train and val (the usual image folder): the given val is the number people compare, so it becomes `test`,
      and a new `val` for the search's decisions is held out of train.
    - train only: both are held out of train.

    Each image is held out with a probability of 15 %, by its content and `seed`; at least one of each class is that has
    more than one image (for the test split: two). A class that no image of `val` or `test` shows is told of in a note,
    and so are classes with few training images.

    Raises:
        UserError: fewer than two classes, a class without training images, or too few images to hold some out.
    """
    if len(raw.classes) < 2:
        only = f" ({raw.classes[0]!r})" if raw.classes else ""
        raise UserError(f"data set {name!r} has only one class{only}", "classification needs at least two classes")
    _check_learnable(name, raw)
    train, val, test = raw.train, raw.val, raw.test
    notes: list[str] = []
    if test is None and val is not None:
        val, test = None, val
        notes.append("the given val images are the test split (final numbers only)")
    if test is None:
        train, test = _split_off(name, train, keep=2, salt=f"test {seed}")
        notes.append(f"test: {len(test)} images held out of train (by content, seed {seed})")
    if val is None:
        train, val = _split_off(name, train, keep=1, salt=f"val {seed}")
        notes.append(f"val: {len(val)} images held out of train (by content, seed {seed})")
    splits = {"train": train, "val": val, "test": test}
    remarks = long_tail(raw.classes, {split: found.labels for split, found in splits.items()})
    remarks += how_read(raw, options)
    if options.balanced:
        train, val, test = (replace(split, balanced=True) for split in (train, val, test))
    return ImageData(
        name=name,
        classes=raw.classes,
        train=train,
        val=val,
        test=test,
        native_resolution=train.resolution,
        preprocess=Preprocess.fit(train.images, raw.framing),
        flip_ok=raw.flip_ok and options.flip,
        class_weights=class_weights(train.labels, len(raw.classes)) if options.class_weights else None,
        notes=(*notes, *remarks),
        picture_size=raw.picture_size,
    )


def class_weights(labels: NDArray[np.int64], classes: int) -> tuple[float, ...]:
    """Weight of each class in proportion to how rare it is among `labels` (n,); their mean over the examples is 1.

    A class that does not occur has the weight 1. (As scikit-learn's `class_weight="balanced"`, for the classes there
    are.)
    """
    counts = np.bincount(labels, minlength=classes)
    present = counts > 0
    weights = np.where(present, len(labels) / (present.sum() * np.maximum(counts, 1)), 1.0)
    return tuple(float(weight) for weight in weights)


def long_tail(classes: Sequence[str], labels: dict[str, NDArray[np.int64]]) -> list[str]:
    """What a reader should know of classes with few images, at most one sentence: the labels (n,) of each split."""
    counts = {split: np.bincount(found, minlength=len(classes)) for split, found in labels.items()}
    parts = [
        f"{len(absent)} of {len(classes)} classes have no image in {split} ({_some(classes, absent)})"
        for split, found in counts.items()
        if len(absent := np.flatnonzero(found == 0))
    ]
    train = counts["train"]
    ratio = train.max() / max(1, train.min())
    if ratio >= UNBALANCED:
        parts.append(f"the most frequent one has {ratio:.0f} times as many training images as the rarest one")
        if len(few := np.flatnonzero(train < FEW)):
            parts.append(f"{len(few)} have fewer than {FEW} training images ({_some(classes, few)})")
    return ["the accuracy says little of rare classes: " + "; ".join(parts)] if parts else []


def how_read(raw: RawImages, options: DataOptions) -> list[str]:
    """What a reader should know of how these images are read."""
    found = []
    if raw.framing == "letterbox":
        found.append("pictures are seen whole, in the middle of a grey square (--fit letterbox)")
    elif raw.picture_size is not None:
        rows, columns = raw.picture_size
        seen = min(rows, columns) / max(rows, columns)
        if seen < SEEN:
            found.append(
                f"of usual pictures of {columns} x {rows} pixels the middle {seen:.0%} is seen (--fit letterbox: all)"
            )
    if raw.flip_ok and not options.flip:
        found.append("images are never mirrored (--no-flip)")
    if options.class_weights:
        found.append("rare classes weigh more in the loss (--class-weights)")
    return found


def _some(classes: Sequence[str], which: NDArray[np.int64]) -> str:
    named = ", ".join(repr(classes[label]) for label in which[:_NAMED])
    return named + (", ..." if len(which) > _NAMED else "")


def _check_learnable(name: str, raw: RawImages) -> None:
    """Raises `UserError` for a class without a training image, and for a split without any image."""
    absent = np.flatnonzero(np.bincount(raw.train.labels, minlength=len(raw.classes)) == 0)
    if len(absent):
        raise UserError(
            f"class {raw.classes[absent[0]]!r} of data set {name!r} has no images in train",
            "add images of it, or remove the class from every split",
        )
    for split_name, split in (("val", raw.val), ("test", raw.test)):
        if split is not None and not len(split):
            raise UserError(
                f"data set {name!r} has no images in {split_name}", "add some, or leave it out: then some are held out"
            )


def _split_off(name: str, train: ImageSplit, keep: int, salt: str) -> tuple[ImageSplit, ImageSplit]:
    kept, held = hold_out(train.labels, train.contents, HOLDOUT_FRACTION, salt, keep=keep)
    if not len(held):
        raise UserError(
            f"no class of data set {name!r} has more than {keep} training images, too few to hold some out",
            "add images, or give train, val and test splits",
        )
    return train.take(kept), train.take(held)
