"""How busy workers are: from spans of trainings, and by simulation."""

import pytest

from experiments.cluster_check import busy, simulate


def test_busy_is_the_time_in_trainings_until_the_last_one_began() -> None:
    """Two workers: the first trains from 1 to 5 and from 5 on, the second from 3 to 4 and from 6 on."""
    found = busy([(1.0, 5.0), (3.0, 4.0), (5.0, 9.0), (6.0, 9.0)], workers=2, start_s=0.0)
    assert found.from_start == pytest.approx((4 + 1 + 1) / 12)
    assert found.in_steady_state == pytest.approx((2 + 1 + 1) / 6)


def test_free_proposals_keep_all_busy_and_dear_ones_only_so_many() -> None:
    assert simulate(20, 10.0, 200, lambda n: 0.0).from_start == pytest.approx(1.0)
    assert simulate(1, 10.0, 50, lambda n: 10.0).in_steady_state == pytest.approx(0.5, abs=0.05)
    crowded = simulate(100, 10.0, 1000, lambda n: 1.0)
    assert crowded.in_steady_state == pytest.approx(0.1, abs=0.02), "a second each feeds ten workers"
