"""What an evaluation promises, against simulation and exact sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.samplers.acquisition import (
    hypervolume,
    log_expected_improvement,
    log_feasibility,
    pareto_front,
)


@pytest.mark.parametrize(("mean", "std", "best"), [(1.0, 0.5, 0.8), (0.0, 1.0, 2.0), (3.0, 0.1, 1.0)])
def test_expected_improvement_is_that_of_a_simulation(mean: float, std: float, best: float) -> None:
    draws = np.random.default_rng(0).normal(mean, std, 400_000)
    simulated = np.maximum(draws - best, 0).mean()
    found = np.exp(log_expected_improvement(np.array([mean]), np.array([std]), best))[0]
    assert found == pytest.approx(simulated, rel=0.03)


def test_hopeless_candidates_are_still_ordered() -> None:
    mean = -np.array([0.5, 1.0, 1.001, 3.0, 30.0, 500.0, 1e5])
    promise = log_expected_improvement(mean, np.ones(len(mean)), 0.0)
    assert np.isfinite(promise).all()
    assert (np.diff(promise) < 0).all()


def test_chance_to_keep_a_limit() -> None:
    chance = np.exp(log_feasibility(np.array([1.0, 1.0, 2.0]), np.array([0.5, 0.5, 0.5]), 1.0))
    assert chance == pytest.approx([0.5, 0.5, 0.02275], rel=1e-3)


def counted_area(points: np.ndarray, size: int) -> float:
    """Cells of a grid with corner (0, 0) that some point dominates."""
    grid = np.zeros((size, size), dtype=bool)
    for x, y in points.astype(int):
        grid[:x, :y] = True
    return float(grid.sum())


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=12))
def test_hypervolume_counts_cells(points: list[tuple[int, int]]) -> None:
    array = np.array(points, dtype=np.float64)
    assert hypervolume(array, (0.0, 0.0)) == counted_area(array, 12)
    front = pareto_front(array)
    assert hypervolume(front, (0.0, 0.0)) == hypervolume(array, (0.0, 0.0))
    assert (np.diff(front[:, 0]) > 0).all()
    assert (np.diff(front[:, 1]) < 0).all()
