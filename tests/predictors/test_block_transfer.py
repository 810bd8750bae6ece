"""A new device from few networks, with known devices as prior."""

import numpy as np
import pytest

from predictors.base import NotFittedError
from predictors.block_features import COLUMNS
from predictors.block_latency import BlockLatencyPredictor
from predictors.block_table import NetworkBlocks
from predictors.block_transfer import MIN_WITH_PRIOR, TransferredLatencyPredictor, mix_weights, mixed_ms
from search_spaces import load_search_space


def networks(n: int, seed: int) -> NetworkBlocks:
    space = load_search_space("mixed")
    return NetworkBlocks.of(space.slots(space.sample(n, np.random.default_rng(seed)), (10,)))


SCALE = networks(200, 9).sums(networks(200, 9).blocks.columns).mean(axis=0).clip(1e-12)


def costs(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.2, 1.0, len(COLUMNS)) / SCALE


def latency(found: NetworkBlocks, cost: np.ndarray) -> np.ndarray:
    return 0.1 + found.sums(found.blocks.columns @ cost)


@pytest.fixture(scope="module")
def sources() -> list[BlockLatencyPredictor]:
    x = networks(100, 0)
    return [BlockLatencyPredictor().fit(x, latency(x, costs(seed))) for seed in (1, 2)]


NEW = 3.0 * costs(1) + 0.3 * costs(7)
"""A device three times as slow as the first source, with something of its own."""


def error(predictor: BlockLatencyPredictor | TransferredLatencyPredictor) -> float:
    unseen = networks(300, 5)
    return float(np.median(np.abs(predictor.predict(unseen).mean / latency(unseen, NEW) - 1)))


@pytest.mark.parametrize("n", [5, 12, 30])
def test_known_devices_help_with_a_new_one(sources: list[BlockLatencyPredictor], n: int) -> None:
    x = networks(n, 3)
    transferred = TransferredLatencyPredictor(sources).fit(x, latency(x, NEW))
    assert error(transferred) < 0.06
    assert (transferred.own_share_ == 0) == (n < 8)
    if n == 12:
        assert error(transferred) < error(BlockLatencyPredictor().fit(x, latency(x, NEW)))
    if n == 30:
        assert error(transferred) < 0.01, "the device's own networks have a say by now"
    unseen = networks(50, 6)
    known = transferred.block_ms(unseen.blocks)
    assert np.allclose(transferred.predict(unseen, known).mean, transferred.predict(unseen).mean)
    assert (transferred.predict(unseen).std > 0).all()


def test_a_source_that_tells_nothing_gets_no_say() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 5, 40)
    said = np.stack([truth / 2, rng.uniform(1, 5, 40)], axis=1)
    weights = mix_weights(said, truth)
    assert weights == pytest.approx([2, 0, 0], abs=1e-6)
    assert mixed_ms(said, weights) == pytest.approx(truth)


def test_misuse(sources: list[BlockLatencyPredictor]) -> None:
    x = networks(MIN_WITH_PRIOR, 1)
    with pytest.raises(ValueError, match="at least one source"):
        TransferredLatencyPredictor([])
    with pytest.raises(NotFittedError):
        TransferredLatencyPredictor(sources).predict(x)
    with pytest.raises(ValueError, match="measured networks"):
        TransferredLatencyPredictor(sources).fit(x.select(np.arange(2)), np.ones(2))
    with pytest.raises(ValueError, match="positive"):
        TransferredLatencyPredictor(sources).fit(x, np.array([1.0, np.nan, 2.0]))


def test_sources_need_no_folds(sources: list[BlockLatencyPredictor]) -> None:
    """A transfer asks its sources for means alone, which are those of predictors with standard deviations."""
    x, few, unseen = networks(100, 0), networks(6, 3), networks(50, 6)
    means = [BlockLatencyPredictor(folds=0).fit(x, latency(x, costs(seed))) for seed in (1, 2)]
    for source, quick in zip(sources, means, strict=True):
        assert np.array_equal(source.predict(unseen).mean, quick.mean_ms(unseen))
    with_folds, without = (TransferredLatencyPredictor(s).fit(few, latency(few, NEW)) for s in (sources, means))
    assert np.array_equal(with_folds.predict(unseen).std, without.predict(unseen).std)
    with pytest.raises(ValueError, match="no standard deviations"):
        means[0].predict(unseen)
