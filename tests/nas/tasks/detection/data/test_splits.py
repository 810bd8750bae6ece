"""Holding images out: by content, reproducible, and never the last image of a class."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas.tasks.detection.data.splits import hold_out_images


def contents(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


@given(st.integers(3, 60), st.integers(1, 8), st.floats(0.02, 0.7), st.integers(0, 2**32 - 1))
def test_every_class_stays_learnable(n: int, c: int, density: float, seed: int) -> None:
    present = np.random.default_rng(seed).random((n, c)) < density
    held = hold_out_images(present, contents(n, seed), 0.15, "val 0")
    assert np.array_equal(held, np.unique(held))
    kept = np.setdiff1d(np.arange(n), held)
    shown = present[held].any(axis=1)
    repeated = present[:, present.sum(axis=0) > 1].any(axis=1) & ~present[:, present.sum(axis=0) == 1].any(axis=1)
    assert shown.any() == repeated.any()
    if shown.sum() > 1:
        assert np.array_equal(present[kept].any(axis=0), present.any(axis=0))


def test_an_image_that_is_added_moves_no_other() -> None:
    rng = np.random.default_rng(1)
    present = rng.random((400, 5)) < 0.4
    known = contents(401, 2)
    before = known[hold_out_images(present[:400], known[:400], 0.15, "test 3")]
    order = rng.permutation(401)
    all_present = np.concatenate([present, np.ones((1, 5), np.bool_)])[order]
    after = known[order][hold_out_images(all_present, known[order], 0.15, "test 3")]
    assert set(before) == set(after) - {known[400]}


def test_the_share_is_what_was_asked_for() -> None:
    present = np.random.default_rng(0).random((20_000, 3)) < 0.3  # a third shows nothing
    held = hold_out_images(present, contents(20_000, 1), 0.15, "val 0")
    for part in (present[held].any(axis=1), ~present[held].any(axis=1)):
        of = present.any(axis=1).sum() if part.sum() > len(held) / 2 else (~present.any(axis=1)).sum()
        assert abs(part.sum() - 0.15 * of) < 5 * np.sqrt(of * 0.15 * 0.85)
