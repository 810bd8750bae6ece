"""The table of a space's blocks says the same as the blocks themselves."""

from dataclasses import replace

import numpy as np
import pytest

from predictors.block_features import COLUMNS, block_columns, block_geometry
from predictors.block_table import NetworkBlocks, SpaceBlocks
from search_spaces import StagedSpace, load_search_space
from search_spaces.slots import concatenate_slots
from tests.search_spaces.own_space import SEPARABLE, SPACE, TABLE


@pytest.mark.parametrize("name", ["mixed", "mobile", "dense", "compact", "detect", "pose"])
def test_candidates_are_found_in_the_table(name: str) -> None:
    space = load_search_space(name)
    choices = space.sample(300, np.random.default_rng(0))
    found, slots = SpaceBlocks(space, size=(17,)).networks(choices), space.slots(choices, (17,))
    assert np.array_equal(found.counts, slots.count)
    assert np.array_equal(found.blocks.kind[found.positions], slots.kind)
    assert np.array_equal(found.blocks.columns[found.positions], block_columns(slots))
    assert np.array_equal(found.blocks.geometry[found.positions], block_geometry(slots))
    plain = NetworkBlocks.of(slots)
    assert found.sums(found.blocks.columns) == pytest.approx(plain.sums(plain.blocks.columns))
    assert np.array_equal(found.largest(found.blocks.columns[:, 1]), plain.largest(plain.blocks.columns[:, 1]))


def test_a_restricted_space_shares_the_blocks() -> None:
    space = load_search_space("mobile")
    small = space.restrict("resolution", [32])
    choices = small.sample(50, np.random.default_rng(1))
    of_small, of_all = SpaceBlocks(small, (10,)).networks(choices), SpaceBlocks(space, (10,)).networks(choices)
    assert np.array_equal(of_small.positions, of_all.positions)


def test_blocks_that_do_not_occur_count_for_nothing() -> None:
    space = load_search_space("dense")
    choices = space.sample(100, np.random.default_rng(2))
    networks = NetworkBlocks.of(space.slots(choices, (10,)))
    assert (networks.counts == 0).any()
    absent = np.where(networks.counts.ravel() == 0, 1e9, 1.0)
    assert networks.largest(absent).max() == 1.0
    assert np.array_equal(networks.sums(absent), networks.counts.sum(axis=1))


@pytest.mark.parametrize("name", ["mixed", "mobile", "dense", "compact", "detect", "pose"])
def test_columns_agree_with_the_analytic_costs(name: str) -> None:
    space = load_search_space(name)
    choices = space.sample(200, np.random.default_rng(0))
    networks, costs = NetworkBlocks.of(space.slots(choices, (10,))), space.costs(choices, (10,))
    found = networks.sums(networks.blocks.columns)
    assert found.shape == (200, len(COLUMNS))
    assert np.isfinite(found).all()
    assert (found >= 0).all()

    def total(what: str) -> np.ndarray:
        return found[:, [i for i, c in enumerate(COLUMNS) if c.endswith("." + what)]].sum(axis=1)

    assert np.array_equal(total("macs"), costs["macs"])
    assert np.array_equal(total("weights"), costs["params"])
    assert np.array_equal(total("calls"), costs["layers"])
    assert (total("tile_macs") >= total("macs")).all()


def test_a_space_may_bring_families_of_its_own() -> None:
    choices = SPACE.sample(60, np.random.default_rng(0))
    slots = SPACE.slots(choices, (10,))
    found = SpaceBlocks(SPACE, (10,)).networks(choices)
    assert "separable" in slots.occurring == found.occurring
    assert np.array_equal(found.blocks.columns[found.positions], block_columns(slots))
    assert np.array_equal(found.sums(found.blocks.columns).sum(axis=1) > 0, np.ones(60, dtype=bool))
    other = load_search_space("mixed")
    both = concatenate_slots([other.slots(other.sample(5, np.random.default_rng(1)), (10,)), slots])
    assert both.occurring == slots.occurring | {"stem", "head", *other.table.families}
    assert np.array_equal(block_columns(both)[5:, : slots.kind.shape[1]], block_columns(slots))


def test_two_families_of_one_name_are_refused() -> None:
    impostor = replace(SEPARABLE, uses=frozenset())
    other = StagedSpace(TABLE, families=(impostor,))
    row = np.zeros((1, len(SPACE.decisions)), dtype=np.int64)
    with pytest.raises(ValueError, match="two different families of blocks are called 'separable'"):
        concatenate_slots([SPACE.slots(row, (10,)), other.slots(row, (10,))])
    with pytest.raises(ValueError, match="another family of blocks called 'basic'"):
        StagedSpace(TABLE, families=(SEPARABLE, replace(impostor, name="basic")))
    with pytest.raises(ValueError, match=r"unknown families \['separable'\]"):
        StagedSpace(TABLE)
