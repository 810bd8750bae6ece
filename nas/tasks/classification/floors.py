"""Accuracies that classes of images can be told with without a network: the most frequent one, and a linear model."""

import time
import warnings

import numpy as np
from numpy.typing import NDArray

from nas.data.images import ImageData, ImageSplit, resized
from nas.tasks.classification.evaluate import accuracy_of
from nas.tasks.floor import LINEAR_MARGIN, Floor, guessing

SIDE = 8
"""Rows and columns of the images that the linear model sees."""
TRAIN_IMAGES = 6000
"""At most so many: more cost seconds and add little to a model of 192 numbers."""
ITERATIONS = 60
"""Iterations of L-BFGS: enough on standardised pixels, and seconds."""


def classification_floors(data: ImageData, seed: int) -> tuple[Floor, ...]:
    """Guessing and logistic regression (scikit-learn) on down-scaled pixels, fitted on `data.train`.

    `seed` draws the training images where there are more than `TRAIN_IMAGES`.
    """
    return guessing(data.train, data.val, data.test, share_right), linear(data, seed)


def share_right(predicted: NDArray[np.int64], split: ImageSplit) -> float:
    """The accuracy of predicted classes, (n,) int64, on a split of n images."""
    return accuracy_of(predicted == split.labels, split)


def linear(data: ImageData, seed: int) -> Floor:
    """Multinomial logistic regression on the pixels of images of `SIDE` x `SIDE`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    start = time.perf_counter()
    train = data.train.some(min(len(data.train), TRAIN_IMAGES), seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ITERATIONS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a floor need not be the best linear model
        model.fit(_pixels(train), train.labels)
    val, test = (share_right(model.predict(_pixels(split)), split) for split in (data.val, data.test))
    return Floor(
        name=f"logistic regression on {SIDE} x {SIDE} pixels",
        accuracy=val, test=test, margin=LINEAR_MARGIN, seconds=time.perf_counter() - start,
    )  # fmt: skip


def _pixels(split: ImageSplit) -> NDArray[np.float32]:
    """(n, SIDE * SIDE * 3) float32 in [0, 1]."""
    small = split if split.resolution == SIDE else resized(split, SIDE)
    return small.images[:].reshape(len(small), -1).astype(np.float32) / np.float32(255)
