"""Holding images out: stratified, reproducible, and never the last image of a class."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas.tasks.detection.data.splits import hold_out_images


@given(st.integers(3, 60), st.integers(1, 8), st.floats(0.02, 0.7), st.integers(0, 2**32 - 1))
def test_every_class_stays_learnable(n: int, c: int, density: float, seed: int) -> None:
    present = np.random.default_rng(seed).random((n, c)) < density
    held = hold_out_images(present, 0.15, np.random.default_rng(seed))
    assert np.array_equal(held, hold_out_images(present, 0.15, np.random.default_rng(seed)))
    assert np.array_equal(held, np.unique(held))
    kept = np.setdiff1d(np.arange(n), held)
    shown = present[held].any(axis=1)
    assert shown.sum() <= max(1, round(0.15 * present.any(axis=1).sum()))
    repeated = present[:, present.sum(axis=0) > 1].any(axis=1) & ~present[:, present.sum(axis=0) == 1].any(axis=1)
    assert shown.any() == repeated.any()
    if shown.sum() > 1:
        assert np.array_equal(present[kept].any(axis=0), present.any(axis=0))


def test_classes_are_held_out_in_proportion() -> None:
    present = np.zeros((300, 3), np.bool_)
    present[:200, 0] = True
    present[200:240, 1] = True
    present[30:60, 2] = True  # beside the first class
    held = hold_out_images(present, 0.15, np.random.default_rng(0))
    assert len(held) == 36 + 9
    assert abs(present[held, 1].sum() - 6) <= 1
    assert abs(present[held, 2].sum() - 4.5) <= 1
    assert (~present[held].any(axis=1)).sum() == 9
