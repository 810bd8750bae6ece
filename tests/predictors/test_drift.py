"""How strongly a deployment follows its device is learned where measurements tell, and assumed elsewhere."""

import numpy as np
import pytest

from predictors.drift import MIN_NETWORKS, drift_exponent


def measured(
    exponent: float, n: int = 120, wobble: float = 0.05, noise: float = 0.04
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantities, latencies in ms and slowness of n networks on a device whose speed wobbles."""
    rng = np.random.default_rng(0)
    columns = rng.lognormal(0.0, 0.8, (n, 6))
    slowness = np.exp(np.abs(rng.normal(0.0, wobble, n)))
    usual = 0.3 + columns @ rng.uniform(0.2, 1.0, 6)
    return columns, usual * slowness**exponent * np.exp(rng.normal(0.0, noise, n)), slowness


@pytest.mark.parametrize("exponent", [0.3, 1.0, 2.5])
def test_it_is_learned(exponent: float) -> None:
    assert drift_exponent(*measured(exponent)) == pytest.approx(exponent, abs=0.35)


def test_without_a_word_of_the_measurements_it_is_one() -> None:
    assert drift_exponent(*measured(2.5, n=MIN_NETWORKS - 1)) == 1.0
    columns, latency_ms, slowness = measured(2.5)
    assert drift_exponent(columns, latency_ms, np.ones_like(slowness)) == 1.0
    calm = drift_exponent(*measured(2.5, wobble=0.0005))
    assert calm == pytest.approx(1.0, abs=0.3), "noise is not taken for drift"


def test_units_do_not_matter() -> None:
    columns, latency_ms, slowness = measured(2.0)
    assert drift_exponent(1e9 * columns, latency_ms, slowness) == pytest.approx(
        drift_exponent(columns, latency_ms, slowness)
    )
