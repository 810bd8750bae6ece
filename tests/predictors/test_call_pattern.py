"""Calls with pauses, predicted from calls without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import Prediction
from predictors.call_pattern import LEAST_STD, MIN_NETWORKS, CallPatternModel


def networks(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Latencies without pauses in ms and parameters of made-up networks."""
    rng = np.random.default_rng(seed)
    return 10 ** rng.uniform(-0.7, 1.3, count), 10 ** rng.uniform(5, 7.5, count)


@given(per_root=st.floats(0, 1.0), per_million=st.floats(0, 0.3), seed=st.integers(0, 100))
def test_what_pauses_cost_is_found_again(per_root: float, per_million: float, seed: int) -> None:
    def spaced(latency: np.ndarray, params: np.ndarray) -> np.ndarray:
        return latency + per_root * np.cbrt(latency) + per_million * params / 1e6

    model = CallPatternModel().fit(*(known := networks(16, seed)), spaced(*known))
    latency, params = networks(50, seed + 1)
    found = model.predict(Prediction(latency, np.zeros(50)), params)
    assert np.allclose(found.mean, spaced(latency, params), rtol=0.02)
    assert np.allclose(found.std, found.mean * model.relative_std_)


# Networks on an Intel Xeon without AMX, ONNX Runtime, 2 threads, calls at 20/s: latency without pauses in ms,
# millions of parameters, latency with pauses in ms.
LARGE = {
    "fp32": ((6.38, 4.82, 7.98), (1.39, 3.70, 2.32), (7.28, 1.25, 8.37), (3.51, 2.21, 4.59)),
    "int8": ((2.44, 4.82, 3.38), (1.52, 3.70, 2.42), (3.20, 1.25, 4.24), (1.68, 2.21, 2.98)),
}
SMALL = {
    "fp32": ((0.65, 1.03, 1.27), (0.41, 0.15, 0.93), (0.41, 0.54, 1.00), (0.19, 0.45, 0.69), (0.14, 0.07, 0.50)),
    "int8": ((0.48, 1.03, 1.12), (0.76, 0.15, 1.46), (0.38, 0.54, 0.79), (0.21, 0.45, 0.68), (0.16, 0.07, 0.53)),
}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_few_large_networks_tell_of_small_ones(precision: str) -> None:
    known, asked = np.array(LARGE[precision]).T, np.array(SMALL[precision]).T
    model = CallPatternModel().fit(known[0], known[1] * 1e6, known[2])
    found = model.predict(Prediction(asked[0], np.zeros(5)), asked[1] * 1e6).mean
    assert np.abs(found / asked[2] - 1).mean() < 0.2
    assert (asked[0] < 0.75 * asked[2]).all(), "what pauses add is a good part of it"


def test_pauses_make_no_network_faster_and_doubt_grows() -> None:
    latency, params = networks(12)
    noise = np.random.default_rng(3).normal(1.0, 0.1, 12)
    model = CallPatternModel().fit(latency, params, 0.95 * latency * noise)
    found = model.predict(Prediction(latency, 0.05 * latency), params)
    assert (found.mean >= latency).all()
    assert model.relative_std_ > 2 * LEAST_STD
    assert (found.std > 0.05 * latency).all()


def test_few_networks_are_too_few() -> None:
    with pytest.raises(ValueError, match="too few"):
        CallPatternModel().fit(*networks(MIN_NETWORKS - 1), np.ones(MIN_NETWORKS - 1))
