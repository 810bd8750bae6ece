"""Structural features: invariances that hold for the networks must hold for what describes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tabular.cells import conv_weights, prune
from experiments.tabular.nb201 import CONV1, CONV3, NONE, POOL, SKIP
from experiments.tabular.views import NB201_VIEWS, chain_views, nb201_summary, nb201_words, staged_views

cells = st.lists(st.integers(0, 4), min_size=6, max_size=6).map(lambda ops: np.array([ops], dtype=np.int64))


def test_pruning_removes_what_reaches_nothing() -> None:
    # edges 0>1, 0>2, 1>2, 0>3, 1>3, 2>3: node 1 feeds only node 2, and node 2 feeds nothing
    cell = np.array([[CONV3, CONV1, SKIP, POOL, NONE, NONE]])
    np.testing.assert_array_equal(prune(cell), [[NONE, NONE, NONE, POOL, NONE, NONE]])


@given(cells)
def test_pruning_twice_is_pruning_once(cell: np.ndarray) -> None:
    once = prune(cell)
    np.testing.assert_array_equal(prune(once), once)


@given(cells)
def test_dead_edges_change_only_the_total_of_weights(cell: np.ndarray) -> None:
    pruned = prune(cell)
    np.testing.assert_array_equal(nb201_words(cell), nb201_words(pruned))
    differs = nb201_summary(cell)[0] != nb201_summary(pruned)[0]
    assert differs.sum() <= int(conv_weights(cell)[0] != conv_weights(pruned)[0])


def test_views_are_finite_and_tell_all_live_cells_apart() -> None:
    every = np.stack(np.meshgrid(*[np.arange(5)] * 6, indexing="ij"), axis=-1).reshape(-1, 6)
    for view in NB201_VIEWS:
        assert np.isfinite(view(every)).all()
    assert len(np.unique(nb201_words(every), axis=0)) == len(np.unique(prune(every), axis=0))


@pytest.mark.parametrize("bad", [np.zeros((2, 5), dtype=int), np.full((2, 6), 5), np.full((2, 6), -1)])
def test_what_is_no_cell_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="operation"):
        nb201_summary(bad)


def test_identities_may_move_within_a_stage() -> None:
    summary, spelled = chain_views((2, 3), widths=(0.0, 3.0, 6.0))
    a, b, other = np.array([[1, 0, 2, 0, 1]]), np.array([[1, 0, 2, 1, 0]]), np.array([[1, 0, 2, 1, 1]])
    for view in (summary, spelled):
        np.testing.assert_array_equal(view(a), view(b))
        assert (view(a) != view(other)).any()


def test_stages_sum_their_decisions_by_depth() -> None:
    summary, _ = staged_views(2, depth_field=1)
    features = summary(np.array([[3, 2, 5, 1]]))[0]
    # values, sums over stages, width x depth per stage, and its total
    np.testing.assert_array_equal(features, [3, 2, 5, 1, 8, 3, 6, 5, 11])
    with pytest.raises(ValueError, match="stages of 2"):
        summary(np.array([[1, 2, 3]]))
