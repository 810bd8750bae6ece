"""The three splits of a detection data set, by the rule of `nas.data.splits.complete`."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import Contents, drawn
from nas.data.images import SPLITS, SplitName
from nas.data.splits import HOLDOUT_FRACTION
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated

Splits = dict[SplitName, list[Annotated]]


def divide(
    name: str, given: Mapping[SplitName, Sequence[Annotated]], num_classes: int, seed: int
) -> tuple[Splits, tuple[str, ...]]:
    """Train, val and test, and how they came about.

    - train, val and test: taken as they are.
    - train and test: `val` is held out of train.
    - train and val: the given val becomes `test`, and a new `val` for the search's decisions is held out of train.
    - train only: both are held out of train.

    A val or test split without a single box cannot be scored and counts as not given.

    Raises:
        UserError: too few training images with boxes to hold some out; no boxes in train.
    """
    notes: list[str] = []
    splits: Splits = {"train": list(given["train"])}
    if not any(len(item.objects) for item in splits["train"]):
        raise UserError(f"data set {name!r} has no boxes in train", "annotate some objects: there is nothing to learn")
    for split in SPLITS[1:]:
        items = given.get(split, ())
        if any(len(item.objects) for item in items):
            splits[split] = list(items)
        elif items:
            notes.append(f"the {len(items)} given {split} images have no boxes and are left out")
    if "test" not in splits and "val" in splits:
        splits["test"] = splits.pop("val")
        notes.append("the given val images are the test split (final numbers only)")
    for split in reversed(SPLITS[1:]):
        if split not in splits:
            kept, held = _hold_out(name, splits["train"], num_classes, f"{split} {seed}")
            splits["train"], splits[split] = kept, held
            notes.append(f"{split}: {len(held)} images held out of train (by content, seed {seed})")
    names = {split: {item.name for item in items} for split, items in splits.items()}
    for one, other in combinations(SPLITS, 2):
        if both := names[one] & names[other]:
            notes.append(f"images are in {one} and in {other}: {len(both)} (first: '{min(both)}')")
    return splits, tuple(notes)


def _hold_out(
    name: str, items: list[Annotated], num_classes: int, salt: str
) -> tuple[list[Annotated], list[Annotated]]:
    present = np.zeros((len(items), num_classes), np.bool_)
    for row, item in enumerate(items):
        present[row, item.objects] = True
    contents = np.array([item.content for item in items], np.uint64)
    held = hold_out_images(present, contents, HOLDOUT_FRACTION, salt)
    kept = np.setdiff1d(np.arange(len(items)), held)
    if not len(held) or not present[kept].any():
        raise UserError(
            f"data set {name!r} has too few training images with boxes to hold some out",
            "add images, or give train, val and test splits",
        )
    return [items[i] for i in kept], [items[i] for i in held]


def hold_out_images(present: NDArray[np.bool_], contents: Contents, fraction: float, salt: str) -> NDArray[np.int64]:
    """Sorted indices of the images that are held out: each with the probability `fraction`, by its content.

    At least one image of every class stays, and at least one with a class is held out where there is any whose classes
    others have too; only where that decides may an image that is added move another one.

    Args:
        present: (n, c) bool, whether image n has class c.
        contents: (n,) of the images' files.
        fraction: of the images.
        salt: of the draw.

    Returns:
        (m,) int64; none at all where each image with a class is the only one of a class.
    """
    frequency = present.sum(axis=0)
    position = drawn(contents, salt)
    shown = present.any(axis=1)
    # The only image of a class has to stay.
    free = shown & ~present[:, frequency == 1].any(axis=1)
    held = free & (position < fraction)
    if free.any() and not held.any():
        held[np.flatnonzero(free)[position[free].argmin()]] = True
    for label in np.flatnonzero(frequency):
        having = np.flatnonzero(held & present[:, label])
        if len(having) == frequency[label] and held.sum() > 1:  # none is left to learn from
            held[having[position[having].argmax()]] = False
    return np.flatnonzero(held | (~shown & (position < fraction)))
