"""Non-negative mixes of amounts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tabular.nonnegative import NonNegativeLatency

RNG = np.random.default_rng(0)
COLUMNS = RNG.random((40, 4))
LAW = 0.3 + COLUMNS @ np.array([0.5, 0.0, 1.0, 0.2])


def test_a_sum_of_amounts_is_learned_from_a_few_rows_one_of_them_wrong() -> None:
    seen = LAW[:15] / LAW[:15].mean()
    seen[3] *= 4
    model = NonNegativeLatency().fit(COLUMNS[:15], seen)
    predicted = model.predict(COLUMNS[15:]) * LAW[:15].mean()
    assert np.abs(predicted / LAW[15:] - 1).max() < 0.15
    assert model.left_out_[3] == pytest.approx(LAW[3] / LAW[:15].mean(), rel=0.2), "it has not seen the wrong row"


@given(st.lists(st.floats(0.2, 5.0), min_size=4, max_size=12))
def test_more_of_an_amount_never_takes_less_time(latencies: list[float]) -> None:
    """Whatever was measured, also where by chance it fell with the amount."""
    relative = np.array(latencies) / np.mean(latencies)
    model = NonNegativeLatency().fit(np.linspace(0, 1, len(relative))[:, None], relative)
    predicted = model.predict(np.linspace(0, 2, 9)[:, None])
    assert (predicted > 0).all()
    assert (np.diff(predicted) >= -1e-9).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_hardly_any_rows_still_give_a_mix(n: int) -> None:
    model = NonNegativeLatency().fit(COLUMNS[:n], LAW[:n] / LAW[:n].mean())
    assert model.left_out_.shape == (n,)
    assert (model.predict(COLUMNS) > 0).all()
