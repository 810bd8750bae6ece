"""The latency predictor of staged networks."""

import numpy as np
import pytest

from predictors.base import NotFittedError
from predictors.block_features import COLUMNS
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor
from predictors.block_table import NetworkBlocks, SpaceBlocks
from predictors.block_transfer import TransferredLatencyPredictor
from search_spaces import UserError, load_search_space
from tests.search_spaces.own_space import SPACE


def networks(n: int, seed: int = 0, space: str = "mixed") -> NetworkBlocks:
    loaded = load_search_space(space)
    return NetworkBlocks.of(loaded.slots(loaded.sample(n, np.random.default_rng(seed)), (10,)))


def block_truth(found: NetworkBlocks, seed: int = 2) -> np.ndarray:
    """Milliseconds of each block of an imagined device: all quantities count, none of them round."""
    scale = networks(200, 9).sums(networks(200, 9).blocks.columns).mean(axis=0).clip(1e-12)
    return found.blocks.columns @ (np.random.default_rng(seed).uniform(0.2, 1.0, len(COLUMNS)) / scale)


def device(found: NetworkBlocks) -> np.ndarray:
    return 0.1 + found.sums(block_truth(found))


def profiled(found: NetworkBlocks) -> np.ndarray:
    """What a profiler says that sees everything 20 % too long; NaN where there is no block."""
    return np.where(found.counts > 0, 1.2 * block_truth(found)[found.positions], np.nan)


def error(predictor: BlockLatencyPredictor) -> float:
    unseen = networks(300, 5)
    return float(np.median(np.abs(predictor.predict(unseen).mean / device(unseen) - 1)))


@pytest.mark.parametrize("with_blocks", [False, True])
def test_contract(with_blocks: bool) -> None:
    x = networks(40)
    y, blocks = device(x), profiled(x) if with_blocks else None
    with pytest.raises(NotFittedError):
        BlockLatencyPredictor().predict(x)
    before = y.copy(), x.blocks.columns.copy()
    predictor = BlockLatencyPredictor().fit(x, y, blocks)
    assert np.array_equal(before[0], y)
    assert np.array_equal(before[1], x.blocks.columns)
    first = predictor.predict(x)
    assert np.allclose(first.mean, BlockLatencyPredictor().fit(x, y, blocks).predict(x).mean)
    assert np.allclose(first.mean[:3], predictor.predict(x.select(np.arange(3))).mean)
    assert (first.std > 0).all()
    assert error(predictor) < 0.08


def test_times_of_blocks_teach_the_costs() -> None:
    """From a dozen networks the sums alone do not tell the costs apart; the blocks do."""
    x = networks(12, 1)
    with_blocks = error(BlockLatencyPredictor().fit(x, device(x), profiled(x)))
    assert with_blocks < 0.05
    assert with_blocks < 0.5 * error(BlockLatencyPredictor().fit(x, device(x)))


def test_some_networks_may_lack_block_times() -> None:
    x = networks(30, 1)
    blocks = profiled(x)
    blocks[::3] = np.nan
    assert error(BlockLatencyPredictor().fit(x, device(x), blocks)) < 0.05
    blocks[:] = np.nan
    alone = BlockLatencyPredictor().fit(x, device(x), blocks).predict(x).mean
    assert np.array_equal(alone, BlockLatencyPredictor().fit(x, device(x)).predict(x).mean)


def test_block_times_can_be_computed_once_for_a_space() -> None:
    x = networks(30)
    predictor = BlockLatencyPredictor().fit(x, device(x), profiled(x))
    space = load_search_space("mobile")
    choices = space.sample(50, np.random.default_rng(3))
    found = SpaceBlocks(space, (10,)).networks(choices)
    once = predictor.predict(found, predictor.block_ms(found.blocks)).mean
    assert once == pytest.approx(predictor.predict(NetworkBlocks.of(space.slots(choices, (10,)))).mean)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_impossible_latencies_are_refused(bad: float) -> None:
    x = networks(20)
    y = device(x)
    y[3] = bad
    with pytest.raises(ValueError, match="positive"):
        BlockLatencyPredictor().fit(x, y)
    few = x.select(np.arange(MIN_NETWORKS - 1))
    with pytest.raises(ValueError, match="at least"):
        BlockLatencyPredictor().fit(few, device(few))


def test_interval_is_wide_enough() -> None:
    """Noise of 5 % on every measurement has to show in the standard deviation."""
    x, unseen = networks(100), networks(300, 7)
    rng = np.random.default_rng(4)
    predictor = BlockLatencyPredictor().fit(x, device(x) * np.exp(0.05 * rng.standard_normal(100)))
    found = predictor.predict(unseen)
    noisy = device(unseen) * np.exp(0.05 * rng.standard_normal(300))
    assert 0.8 <= (np.abs(found.mean - noisy) <= 1.645 * found.std).mean() <= 0.99


def test_scaled_latencies_give_scaled_predictions() -> None:
    x = networks(30)
    ones, thousands = (BlockLatencyPredictor().fit(x, s * device(x), profiled(x)).predict(x).mean for s in (1, 1000))
    assert thousands == pytest.approx(1000 * ones, rel=1e-3)


def test_a_family_that_was_never_measured_is_refused_by_name() -> None:
    x = networks(30)
    predictor = BlockLatencyPredictor().fit(x, device(x))
    own = SPACE.sample(40, np.random.default_rng(0))
    unknown = NetworkBlocks.of(SPACE.slots(own, (10,)))
    for call in (lambda: predictor.predict(unknown), lambda: predictor.block_ms(SpaceBlocks(SPACE, (10,)).blocks)):
        with pytest.raises(UserError, match="blocks of kind separable were never measured"):
            call()
    known = TransferredLatencyPredictor([predictor]).fit(x, device(x))
    with pytest.raises(UserError, match="separable"):
        known.predict(unknown)
    measured = BlockLatencyPredictor().fit(unknown, device(unknown))
    assert measured.known_kinds_ == {"stem", "head", "basic", "separable"}
    assert measured.predict(unknown).mean == pytest.approx(device(unknown), rel=0.2)
