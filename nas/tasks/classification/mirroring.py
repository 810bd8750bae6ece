"""Whether a mirrored image still shows its class: an arrow to the left does not, a photograph of a church does."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nas.data.images import ImageData, ImageSplit

SIDE = 8
"""Rows and columns of the images that the linear model sees."""
TRAIN_IMAGES, VAL_IMAGES = 4000, 2000
"""At most so many are looked at."""
CHUNK, ENOUGH = 256, 32
"""Images that are read at once, and pixels of a side that they are thinned out to before they are shrunk to `SIDE`:
large images then cost what small ones do."""
RIDGE = 1e-2
"""Weight of the squared coefficients, by image and standard deviation of a pixel."""
KNOWN, LOST, SURE = 0.5, 0.5, 3.0
"""A class counts where the model is right in so much of it, loses so much of that when the images are mirrored, and the
loss is so many standard deviations of what chance does (McNemar 1947)."""
_NAMED = 4
"""Classes that a remark names at most."""


def mirrored_where_it_may(data: ImageData) -> ImageData:
    """The data, whose images are not to be mirrored where `turned_classes` finds any; a note says so."""
    turned = turned_classes(data) if data.flip_ok else []
    if not turned:
        return data
    named = ", ".join(map(repr, turned[:_NAMED])) + (", ..." if len(turned) > _NAMED else "")
    note = (
        f"images are not mirrored: a linear model that knows {named} no longer knows them then "
        "(--flip-anyway: all the same; in a recipe augmentation.flip: true)"
    )
    return replace(data, flip_ok=False, notes=(*data.notes, note))


def turned_classes(data: ImageData, seed: int = 0) -> list[str]:
    """Names of classes whose validation images a linear model knows, and no longer knows when they are mirrored.

    The model is ridge regression of the classes on the down-scaled pixels of the training images. Classes that it does
    not know tell nothing.
    """
    if data.native_resolution < SIDE:
        return []
    train, val = _some(len(data.train), TRAIN_IMAGES, seed), _some(len(data.val), VAL_IMAGES, seed)
    fitted, mean, std = _fit(_small(data.train, train), data.train.labels[train], data.num_classes)
    images, labels = _small(data.val, val), data.val.labels[val]

    def right(pixels: NDArray[np.float32]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (_rows(pixels, mean, std) @ fitted).argmax(axis=1) == labels
        return found

    return [data.classes[label] for label in _turned(right(images), right(images[:, :, ::-1]), labels)]


def _turned(plain: NDArray[np.bool_], mirrored: NDArray[np.bool_], labels: NDArray[np.int64]) -> list[int]:
    """The labels of classes that are known and, mirrored, no longer: (n,) whether answers are right, and labels."""
    found = []
    for label in np.unique(labels):
        before, after = plain[labels == label], mirrored[labels == label]
        lost, won = int((before & ~after).sum()), int((after & ~before).sum())
        is_sure = lost - won > SURE * math.sqrt(lost + won)
        if before.mean() >= KNOWN and after.sum() <= LOST * before.sum() and is_sure:
            found.append(int(label))
    return found


def _fit(
    images: NDArray[np.float32], labels: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float32]]:
    """Coefficients (1 + pixels, classes) of the model, and the mean and standard deviation of each pixel."""
    flat = images.reshape(len(images), -1)
    mean, std = flat.mean(axis=0), np.maximum(flat.std(axis=0), 1 / 255)
    rows, wanted = _rows(images, mean, std).astype(np.float64), np.eye(classes)[labels]
    squares = rows.T @ rows + RIDGE * len(rows) * np.eye(rows.shape[1])
    fitted = np.asarray(np.linalg.solve(squares, rows.T @ wanted), np.float64)
    return fitted, mean, std


def _rows(images: NDArray[np.float32], mean: NDArray[np.float32], std: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, 1 + pixels) float32: a one, and the standardised pixels."""
    flat = (images.reshape(len(images), -1) - mean) / std
    return np.hstack([np.ones((len(flat), 1), np.float32), flat])


def _some(count: int, most: int, seed: int) -> NDArray[np.int64]:
    """Which of `count` images are looked at, in order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def _small(split: ImageSplit, which: NDArray[np.int64]) -> NDArray[np.float32]:
    """(n, SIDE, SIDE, 3) float32 in [0, 1] of the images `which`: means of squares, without what is left at borders."""
    step = max(1, split.resolution // ENOUGH)
    parts = [split.images[which[start : start + CHUNK]][:, ::step, ::step] for start in range(0, len(which), CHUNK)]
    square = parts[0].shape[1] // SIDE
    first, last = (parts[0].shape[1] - SIDE * square) // 2, (parts[0].shape[1] + SIDE * square) // 2
    shape = (-1, SIDE, square, SIDE, square, 3)
    means = [part[:, first:last, first:last].reshape(shape).mean(axis=(2, 4), dtype=np.float32) for part in parts]
    return np.asarray(np.concatenate(means) / 255, np.float32)
