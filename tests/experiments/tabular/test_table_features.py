"""Encodings against hand-made cells, layers and layouts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from experiments.tabular.block_costs import FBNET_SKIP, fbnet_cost_table, ofa_layer_costs
from experiments.tabular.cells import longest_path, prune, structure
from experiments.tabular.features import counts, one_hot
from experiments.tabular.layouts import table_encoding
from experiments.tabular.nb201 import CONV1, CONV3, NONE, POOL, SKIP
from predictors.base import Prediction
from search_spaces.errors import UnknownNameError, UserError


def test_prune_drops_edges_off_every_path() -> None:
    # 0>1 leads nowhere because 1>2 and 1>3 are absent; 2>3 starts at a node that nothing reaches
    cell = np.array([[CONV3, NONE, NONE, SKIP, NONE, CONV1]])
    assert prune(cell).tolist() == [[NONE, NONE, NONE, SKIP, NONE, NONE]]


def test_prune_keeps_a_fully_connected_cell() -> None:
    cell = np.full((1, 6), CONV3)
    np.testing.assert_array_equal(prune(cell), cell)


def test_prune_empties_a_disconnected_cell() -> None:
    cell = np.array([[CONV3, CONV3, CONV3, NONE, NONE, NONE]])
    assert not prune(cell).any()
    assert structure(prune(cell)).tolist() == [[0, 0, 0, 0, 0, 0, 0]]


def test_longest_path_of_a_chain() -> None:
    chain = np.array([[CONV3, NONE, CONV1, NONE, NONE, POOL]])  # 0>1, 1>2, 2>3
    assert longest_path(chain, (0, 0, 1, 2, 4)).tolist() == [7.0]


def test_structure_of_the_full_cell() -> None:
    connected, sums, nodes, paths, *_ = structure(np.full((1, 6), SKIP))[0]
    # node 2 adds two tensors, node 3 three; paths: 03, 013, 023, 0123
    assert (connected, sums, nodes, paths) == (1, 3, 3, 4)


def test_one_hot_and_counts() -> None:
    choices = np.array([[0, 2], [1, 1]])
    assert one_hot(choices, 3).tolist() == [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0]]
    assert counts(choices, 3).tolist() == [[1, 0, 1], [0, 2, 0]]


def test_fbnet_first_layer_by_hand() -> None:
    table = fbnet_cost_table()
    assert table.shape == (22, 9, 8)
    pointwise, depthwise, _, weights, blocks, *_ = table[0, 2]  # k3, expansion 3, 16 -> 16 channels at 32 x 32
    assert pointwise == 32 * 32 * (16 * 48 + 48 * 16)
    assert depthwise == 32 * 32 * 48 * 9
    assert weights == 16 * 48 + 48 * 16 + 48 * 9
    assert blocks == 1


def test_fbnet_skip_is_free_only_where_the_shape_stays() -> None:
    table = fbnet_cost_table()
    assert not table[2, FBNET_SKIP].any()  # second layer of a stage
    assert table[1, FBNET_SKIP, 0] == 32 * 32 * 16 * 24  # 16 -> 24 channels needs a convolution


def test_fbnet_grouped_pointwise_costs_half() -> None:
    table = fbnet_cost_table()
    np.testing.assert_allclose(table[:, 1, 0] * 2, table[:, 0, 0])


def _ofa_row(depth: int, resolution: int) -> np.ndarray:
    return np.array([[3] * 20 + [4] * 20 + [depth] * 5 + [resolution]], dtype=np.float64)


def test_ofa_slots_beyond_the_depth_cost_nothing() -> None:
    costs = ofa_layer_costs(_ofa_row(depth=2, resolution=128))[0].reshape(5, 4, -1)
    assert (costs[:, :2, 0] > 0).all()
    assert not costs[:, 2:].any()


def test_ofa_first_layer_by_hand() -> None:
    first = ofa_layer_costs(_ofa_row(depth=2, resolution=128))[0, 0]
    assert first[0] == 64 * 64 * 16 * 64 + 32 * 32 * 64 * 24  # expansion 4 of 16 channels, stride 2
    assert first[1] == 32 * 32 * 64 * 9


def test_inactive_ofa_choices_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    reference = np.repeat(_ofa_row(2, 128), 64, axis=0)
    reference[:, :20] = rng.choice([3, 5, 7], (64, 20))
    reference[:, 20:40] = rng.choice([3, 4, 6], (64, 20))
    reference[:, 40:45] = rng.choice([2, 3, 4], (64, 5))
    reference[:, 45] = rng.choice(np.arange(128, 228, 4), 64)
    encoding = table_encoding(reference)
    assert encoding.name == "ofa"
    row = reference[:1].copy()
    row[0, 40:45] = 2
    other = row.copy()
    other[0, 3] = 3 if row[0, 3] != 3 else 5  # the fourth slot of the first unit is beyond its depth
    np.testing.assert_array_equal(encoding.encode(row), encoding.encode(other))


def test_layouts_are_recognised_by_their_values() -> None:
    rng = np.random.default_rng(0)
    assert table_encoding(rng.integers(0, 5, (200, 6))).name == "nb201"
    assert table_encoding(rng.integers(0, 9, (200, 22))).name == "fbnet"
    assert table_encoding(rng.integers(0, 7, (200, 6))).name == "generic"
    assert table_encoding(rng.standard_normal((200, 6))).name == "generic"


def test_blocks_tile_the_encoded_columns() -> None:
    cells = np.random.default_rng(0).integers(0, 5, (200, 6)).astype(np.float64)
    encoding = table_encoding(cells)
    edges = [(block.start, block.stop) for block in encoding.blocks]
    assert edges[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(edges))
    assert edges[-1][1] == encoding.encode(cells).shape[1]


def test_amounts_of_work_are_told_where_layers_are_known() -> None:
    rng = np.random.default_rng(0)
    reference = rng.integers(0, 9, (200, 22)).astype(np.float64)
    encoding = table_encoding(reference)
    amounts = encoding.costs(reference)
    assert amounts is not None
    np.testing.assert_allclose(amounts.mean(0), 1)
    assert amounts.min() >= 0
    smallest, largest = encoding.costs(np.full((1, 22), 8.0)), encoding.costs(np.full((1, 22), 7.0))
    assert smallest is not None
    assert largest is not None
    assert (smallest[0, :4] < largest[0, :4]).all(), "only skips, and only the widest blocks"
    cells = table_encoding(rng.integers(0, 5, (200, 6)))
    assert cells.costs(np.zeros((3, 6))) is None


def test_a_wrong_layout_is_a_sentence() -> None:
    cells = np.random.default_rng(0).integers(0, 5, (50, 6))
    with pytest.raises(UserError, match="do not have the layout of 'fbnet'"):
        table_encoding(cells, "fbnet")
    with pytest.raises(UnknownNameError, match="nb301"):
        table_encoding(cells, "nb301")


def test_prediction_checks_itself() -> None:
    one = np.ones(3)
    with pytest.raises(ValueError, match="must both be"):
        Prediction(one, np.ones(2))
    with pytest.raises(ValueError, match="finite"):
        Prediction(np.array([1.0, np.nan, 1.0]), one)
    with pytest.raises(ValueError, match="negative"):
        Prediction(one, -one)
