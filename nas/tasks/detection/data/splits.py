"""The three splits of a detection data set, by the rule of `nas.data.images.complete`."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nas.data.images import HOLDOUT_FRACTION, SPLITS, SplitName
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
    rng = np.random.default_rng(seed)
    for split in reversed(SPLITS[1:]):
        if split not in splits:
            kept, held = _hold_out(name, splits["train"], num_classes, rng)
            splits["train"], splits[split] = kept, held
            notes.append(f"{split}: {len(held)} images held out of train (stratified, seed {seed})")
    names = {split: {item.name for item in items} for split, items in splits.items()}
    for one, other in combinations(SPLITS, 2):
        if both := names[one] & names[other]:
            notes.append(f"images are in {one} and in {other}: {len(both)} (first: '{min(both)}')")
    return splits, tuple(notes)


def _hold_out(
    name: str, items: list[Annotated], num_classes: int, rng: np.random.Generator
) -> tuple[list[Annotated], list[Annotated]]:
    present = np.zeros((len(items), num_classes), np.bool_)
    for row, item in enumerate(items):
        present[row, item.objects] = True
    held = hold_out_images(present, HOLDOUT_FRACTION, rng)
    kept = np.setdiff1d(np.arange(len(items)), held)
    if not len(held) or not present[kept].any():
        raise UserError(
            f"data set {name!r} has too few training images with boxes to hold some out",
            "add images, or give train, val and test splits",
        )
    return [items[i] for i in kept], [items[i] for i in held]


def hold_out_images(present: NDArray[np.bool_], fraction: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sorted indices of `fraction` of the images, stratified by the rarest class that each shows.

    An image has several classes, so no draw can hold out the same share of each. Every k-th image is taken of a random
    order sorted by the frequency of the rarest class; at least one image of every class stays.

    Args:
        present: (n, c) bool, whether image n has class c; images without any class are stratified by themselves.

    Returns:
        (m,) int64; at least one image with a class, or none at all where each of them is the only one of a class.
    """
    frequency = present.sum(axis=0)
    counts = np.where(present, frequency, len(present) + 1)
    rarest = counts.min(axis=1, initial=len(present) + 1)
    order = rng.permutation(len(present))
    order = order[np.lexsort((counts.argmin(axis=1)[order], rarest[order]))]
    shown = order[(rarest[order] > 1) & (rarest[order] <= len(present))]
    empty = order[rarest[order] > len(present)]
    held = _every(shown, min(len(shown), max(1, round(fraction * present.any(axis=1).sum()))), rng)
    for label in np.flatnonzero(frequency):
        having = held[present[held, label]]
        if len(having) == frequency[label] and len(held) > 1:  # none is left to learn from
            held = held[held != having[0]]
    return np.sort(np.concatenate([held, _every(empty, round(fraction * len(empty)), rng)]))


def _every(indices: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`count` of `indices`, evenly spaced from a random start."""
    if not count:
        return indices[:0]
    positions = np.floor((np.arange(count) + rng.random()) * (len(indices) / count))
    taken: NDArray[np.int64] = indices[positions.astype(np.int64)]
    return taken
