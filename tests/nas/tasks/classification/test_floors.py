"""What needs no network is as right as it should be, and a network has to be worth more."""

import numpy as np
import pytest

from nas.data.images import ImageData, ImageSplit, Preprocess
from nas.tasks.classification.floors import linear, share_right
from nas.tasks.floor import Floor, guessing, missed_floor


def _brightness(count: int, seed: int) -> ImageSplit:
    """Class 1 is bright, and twice as frequent as class 0."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 3 > 0).astype(np.int64)
    images = rng.integers(0, 120, (count, 16, 16, 3)) + 100 * labels[:, None, None, None]
    return ImageSplit(images.astype(np.uint8), labels)


def test_guessing_and_a_linear_model() -> None:
    train, val, test = _brightness(90, 0), _brightness(30, 1), _brightness(60, 2)
    data = ImageData("bright", ("dark", "bright"), train, val, test, 16, Preprocess.fit(train.images))
    guessed = guessing(data.train, data.val, data.test, share_right)
    assert (guessed.accuracy, guessed.test) == pytest.approx((2 / 3, 2 / 3))
    assert (linear(data, 0).accuracy, linear(data, 0).test) == (1.0, 1.0)


def test_the_highest_floor_that_is_missed_is_named() -> None:
    low = Floor(name="guessing", accuracy=0.1, test=None, margin=2.0, seconds=0.0)
    high = Floor(name="linear", accuracy=0.9, test=None, margin=-1.0, seconds=0.0)
    assert missed_floor(0.88, (low, high), 0.02) is None
    assert missed_floor(0.87, (low, high), 0.02) == high
    assert missed_floor(0.13, (low, high), 0.02) == high
    assert missed_floor(0.13, (low,), 0.02) == low
    assert missed_floor(0.14, (low,), 0.02) is None
    assert missed_floor(0.0, (), None) is None
    assert missed_floor(0.89, (high,), None) == high
