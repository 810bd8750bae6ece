"""Paired losses: against a simulation of what happens on further examples."""

import numpy as np
import pytest

from nas.baseline.contract import paired_loss


def test_counts_and_verdicts() -> None:
    before = np.array([True] * 90 + [False] * 10)
    after = before.copy()
    after[:3] = False
    after[95] = True
    loss = paired_loss(before, after)
    assert (loss.worse, loss.better, loss.examples) == (3, 1, 100)
    assert loss.mean == pytest.approx(0.02)
    assert loss.low < loss.mean < loss.high
    assert loss.verdict(loss.high) == "kept"
    assert loss.verdict(0.02) == "kept, not proven"
    assert loss.verdict(0.019) == "missed"


def test_no_difference_on_few_examples_proves_little() -> None:
    same = np.ones(20, bool)
    assert paired_loss(same, same).verdict(0.01) == "kept, not proven"
    many = np.ones(2000, bool)
    assert paired_loss(many, many).verdict(0.01) == "kept"


@pytest.mark.parametrize(("worse", "better", "n"), [(0.08, 0.05, 400), (0.01, 0.004, 1000), (0.2, 0.2, 100)])
def test_nine_of_ten_intervals_hold_the_true_loss(worse: float, better: float, n: int) -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        drawn = rng.choice(3, n, p=[worse, better, 1 - worse - better])
        loss = paired_loss(drawn != 1, drawn != 0)
        held += loss.low <= worse - better <= loss.high
    assert 870 <= held <= 950


def test_pairs_are_of_the_same_examples() -> None:
    with pytest.raises(ValueError, match="same examples"):
        paired_loss(np.ones(2, bool), np.ones(3, bool))
