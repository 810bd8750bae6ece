"""Calls with pauses, predicted from calls without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import Prediction
from predictors.call_pattern import LEAST_STD, MIN_NETWORKS, CallPatternModel


def latencies(count: int, seed: int = 0) -> np.ndarray:
    """Without pauses, in ms, of made-up networks."""
    return 10 ** np.random.default_rng(seed).uniform(-0.7, 1.3, count)


@given(per_root=st.floats(0, 2.0), count=st.integers(MIN_NETWORKS, 16), seed=st.integers(0, 100))
def test_what_pauses_cost_is_found_again(per_root: float, count: int, seed: int) -> None:
    def spaced(latency: np.ndarray) -> np.ndarray:
        return latency + per_root * np.cbrt(latency)

    model = CallPatternModel().fit(known := latencies(count, seed), spaced(known))
    asked = latencies(50, seed + 1)
    found = model.predict(Prediction(asked, np.zeros(50)))
    assert np.allclose(found.mean, spaced(asked))
    assert np.allclose(found.std, found.mean * model.relative_std_)


# Networks on an Intel Xeon without AMX, ONNX Runtime, 2 threads, calls at 20/s: latency without pauses and with them,
# in ms.
LARGE = {
    "fp32": ((6.38, 7.98), (1.39, 2.32), (7.28, 8.37), (3.51, 4.59)),
    "int8": ((2.44, 3.38), (1.52, 2.42), (3.20, 4.24), (1.68, 2.98)),
}
SMALL = {
    "fp32": ((0.65, 1.27), (0.41, 0.93), (0.41, 1.00), (0.19, 0.69), (0.14, 0.50)),
    "int8": ((0.48, 1.12), (0.76, 1.46), (0.38, 0.79), (0.21, 0.68), (0.16, 0.53)),
}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_few_large_networks_tell_of_small_ones(precision: str) -> None:
    known, asked = np.array(LARGE[precision]).T, np.array(SMALL[precision]).T
    model = CallPatternModel().fit(*known)
    found = model.predict(Prediction(asked[0], np.zeros(5))).mean
    assert np.abs(found / asked[1] - 1).mean() < 0.1
    assert (asked[0] < 0.75 * asked[1]).all(), "what pauses add is a good part of it"


def test_noise_of_a_few_is_not_taken_for_something_else() -> None:
    """Five networks on an EPYC (Zen 4), OpenVINO int8, one session each; others, with up to four times as many weights,
    took about what the cube root says; a factor of the weights that was fitted too said up to four times as much."""
    known = np.array([(1.75, 3.90), (2.71, 6.09), (1.43, 3.31), (3.81, 8.81), (0.28, 1.18)]).T
    asked = np.array([(1.04, 2.66), (2.20, 4.44), (1.61, 3.63)]).T
    found = CallPatternModel().fit(*known).predict(Prediction(asked[0], np.zeros(3))).mean
    assert (np.abs(found / asked[1] - 1) < 0.35).all()


def test_pauses_make_no_network_faster_and_doubt_grows() -> None:
    latency = latencies(12)
    noise = np.random.default_rng(3).normal(1.0, 0.1, 12)
    model = CallPatternModel().fit(latency, 0.95 * latency * noise)
    found = model.predict(Prediction(latency, 0.05 * latency))
    assert (found.mean >= latency).all()
    assert model.relative_std_ > 2 * LEAST_STD
    assert (found.std > 0.05 * latency).all()


def test_few_networks_are_too_few() -> None:
    with pytest.raises(ValueError, match="too few"):
        CallPatternModel().fit(latencies(MIN_NETWORKS - 1), np.ones(MIN_NETWORKS - 1))
