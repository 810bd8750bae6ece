"""Accuracies that classes of images can be told with without a network: the most frequent one, and a linear model."""

import time
import warnings

import numpy as np
from numpy.typing import NDArray

from nas.data.images import ImageData, ImageSplit, resized
from nas.tasks.classification.evaluate import accuracy_of
from nas.tasks.floor import Floor

SIDE = 8
"""Rows and columns of the images that the linear model sees."""
TRAIN_IMAGES = 6000
"""At most so many: more cost seconds and add little to a model of 192 numbers."""
ITERATIONS = 60
"""Iterations of L-BFGS: enough on standardised pixels, and seconds."""
GUESSING_MARGIN, LINEAR_MARGIN = 2.0, -1.0
"""Standard errors: a network has to be surely better than guessing, and not surely worse than the linear model."""


def classification_floors(data: ImageData, seed: int) -> tuple[Floor, ...]:
    """Guessing and logistic regression (scikit-learn) on down-scaled pixels, fitted on `data.train`.

    `seed` draws the training images where there are more than `TRAIN_IMAGES`.
    """
    return guessing(data), linear(data, seed)


def guessing(data: ImageData) -> Floor:
    """The most frequent class of the training images for every image."""
    start = time.perf_counter()
    frequent = int(np.bincount(data.train.labels, minlength=data.num_classes).argmax())
    val, test = (accuracy_of(split.labels == frequent, split) for split in (data.val, data.test))
    return Floor(name="guessing", accuracy=val, test=test, margin=GUESSING_MARGIN, seconds=time.perf_counter() - start)


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
    val, test = (accuracy_of(model.predict(_pixels(split)) == split.labels, split) for split in (data.val, data.test))
    return Floor(
        name=f"logistic regression on {SIDE} x {SIDE} pixels",
        accuracy=val, test=test, margin=LINEAR_MARGIN, seconds=time.perf_counter() - start,
    )  # fmt: skip


def _pixels(split: ImageSplit) -> NDArray[np.float32]:
    """(n, SIDE * SIDE * 3) float32 in [0, 1]."""
    small = split if split.resolution == SIDE else resized(split, SIDE)
    return small.images.reshape(len(small), -1).astype(np.float32) / np.float32(255)
