"""The additive latency predictor and the columns it is made of."""

import numpy as np
import pytest

from predictors.base import NotFittedError
from predictors.block_features import COLUMNS, network_columns
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor
from search_spaces import load_search_space


def columns(n: int, seed: int = 0, space: str = "mixed") -> np.ndarray:
    loaded = load_search_space(space)
    return network_columns(loaded.slots(loaded.sample(n, np.random.default_rng(seed)), 10))


@pytest.mark.parametrize("name", ["mixed", "mobile", "dense"])
def test_columns_agree_with_the_analytic_costs(name: str) -> None:
    space = load_search_space(name)
    choices = space.sample(200, np.random.default_rng(0))
    found, costs = network_columns(space.slots(choices, 10)), space.costs(choices, 10)
    assert found.shape == (200, len(COLUMNS))
    assert np.isfinite(found).all()
    assert (found >= 0).all()

    def total(what: str) -> np.ndarray:
        return found[:, [i for i, c in enumerate(COLUMNS) if c.endswith("." + what)]].sum(axis=1)

    assert np.array_equal(total("macs"), costs["macs"])
    assert np.array_equal(total("weights"), costs["params"])
    assert np.array_equal(total("calls"), costs["layers"])
    assert (total("tile_macs") >= total("macs")).all()


def test_columns_of_a_network_do_not_depend_on_the_others() -> None:
    together = columns(50)
    space = load_search_space("mixed")
    choices = space.sample(50, np.random.default_rng(0))
    alone = np.concatenate([network_columns(space.slots(row[None], 10)) for row in choices])
    assert np.allclose(together, alone)


def test_contract() -> None:
    x = columns(40)
    y = 0.1 + x[:, COLUMNS.index("spatial.macs")] * 1e-8 + x[:, COLUMNS.index("pointwise.macs")] * 3e-8
    with pytest.raises(NotFittedError):
        BlockLatencyPredictor().predict(x)
    before = x.copy(), y.copy()
    predictor = BlockLatencyPredictor().fit(x, y)
    assert np.array_equal(before[0], x)
    assert np.array_equal(before[1], y)
    first = predictor.predict(x)
    assert np.allclose(first.mean, BlockLatencyPredictor().fit(x, y).predict(x).mean)
    assert np.allclose(first.mean[:3], predictor.predict(x[:3]).mean)
    assert (first.std > 0).all()
    unseen = columns(200, seed=5)
    truth = 0.1 + unseen[:, COLUMNS.index("spatial.macs")] * 1e-8 + unseen[:, COLUMNS.index("pointwise.macs")] * 3e-8
    assert np.median(np.abs(predictor.predict(unseen).mean / truth - 1)) < 0.05


def test_scaled_latencies_give_scaled_predictions() -> None:
    x = columns(30)
    y = 0.2 + x[:, COLUMNS.index("spatial.macs")] * 1e-8 + 0.01 * np.arange(30)
    ones, thousands = (BlockLatencyPredictor().fit(x, scale * y).predict(x).mean for scale in (1.0, 1000.0))
    assert thousands == pytest.approx(1000 * ones, rel=1e-3)


def test_wrong_input_is_refused() -> None:
    x = columns(20)
    with pytest.raises(ValueError, match="at least"):
        BlockLatencyPredictor().fit(x[: MIN_NETWORKS - 1], np.ones(MIN_NETWORKS - 1))
    with pytest.raises(ValueError, match="positive"):
        BlockLatencyPredictor().fit(x, np.zeros(20))
