"""Calls with pauses, predicted from calls without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import Prediction
from predictors.call_pattern import LEAST_STD, MIN_NETWORKS, CallPatternModel


def networks(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latencies without pauses in ms, parameters and layers of made-up networks."""
    rng = np.random.default_rng(seed)
    layers = rng.integers(8, 80, count).astype(float)
    params = 10 ** rng.uniform(5, 7.5, count)
    return 10 ** rng.uniform(-0.7, 1.3, count), params, layers


@given(
    start=st.floats(0, 0.5), share=st.floats(0, 1.0), per_million=st.floats(0, 0.3), per_layer=st.floats(0, 0.01),
    seed=st.integers(0, 100),
)  # fmt: skip
def test_what_pauses_cost_is_found_again(
    start: float, share: float, per_million: float, per_layer: float, seed: int
) -> None:
    def spaced(latency: np.ndarray, params: np.ndarray, layers: np.ndarray) -> np.ndarray:
        return latency + start + share * latency + per_million * params / 1e6 + per_layer * layers

    model = CallPatternModel().fit(*(known := networks(16, seed)), spaced(*known))
    latency, params, layers = networks(50, seed + 1)
    found = model.predict(Prediction(latency, np.zeros(50)), params, layers)
    assert np.allclose(found.mean, spaced(latency, params, layers), rtol=0.02)
    assert np.allclose(found.std, found.mean * model.relative_std_)


def test_pauses_make_no_network_faster_and_doubt_grows() -> None:
    latency, params, layers = networks(12)
    noise = np.random.default_rng(3).normal(1.0, 0.1, 12)
    model = CallPatternModel().fit(latency, params, layers, 0.95 * latency * noise)
    found = model.predict(Prediction(latency, 0.05 * latency), params, layers)
    assert (found.mean >= latency).all()
    assert model.relative_std_ > 2 * LEAST_STD
    assert (found.std > 0.05 * latency).all()


def test_few_networks_are_too_few() -> None:
    with pytest.raises(ValueError, match="too few"):
        CallPatternModel().fit(*networks(MIN_NETWORKS - 1), np.ones(MIN_NETWORKS - 1))
