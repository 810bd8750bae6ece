"""Every latency predictor and every transfer keeps the same contract."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.tabular.latency import LATENCY_PREDICTORS
from experiments.tabular.layouts import table_encoding
from experiments.tabular.transfer import TRANSFER_PREDICTORS
from predictors.base import LatencyPredictor, NotFittedError
from search_spaces.errors import UserError

N_TRAIN = 25

Table = tuple[NDArray[np.float64], NDArray[np.float64]]


def _table() -> Table:
    """150 cells and their latencies on three made-up devices: costs of operations, 2 % noise."""
    rng = np.random.default_rng(7)
    # Shuffled: the first rows of a sorted table would not be a random sample of it.
    cells = rng.permutation(np.unique(rng.integers(0, 5, (150, 6)), axis=0)).astype(np.float64)
    cells[0] = 4.0  # all five operations occur, so that the layout is recognised
    op_costs = np.array([[0.1, 0.2, 1.0, 3.0, 0.5], [0.0, 0.1, 2.0, 2.5, 1.5], [0.3, 0.3, 0.6, 4.0, 0.2]])
    clean = np.stack([3 + costs[cells.astype(int)].sum(1) for costs in op_costs], axis=1)
    return cells, clean * np.exp(0.02 * rng.standard_normal(clean.shape))


CELLS, LATENCY_MS = _table()
TARGET_MS = LATENCY_MS[:, 0]


def _latency(name: str) -> LatencyPredictor:
    return LATENCY_PREDICTORS[name](table_encoding(CELLS))


def _transfer(name: str) -> LatencyPredictor:
    return TRANSFER_PREDICTORS[name](table_encoding(CELLS), CELLS, LATENCY_MS[:, 1:])


FACTORIES: dict[str, Callable[[], LatencyPredictor]] = {
    **{name: lambda name=name: _latency(name) for name in LATENCY_PREDICTORS},  # type: ignore[misc]
    **{name: lambda name=name: _transfer(name) for name in TRANSFER_PREDICTORS},  # type: ignore[misc]
}


@pytest.fixture(params=list(FACTORIES))
def predictor(request: pytest.FixtureRequest) -> LatencyPredictor:
    return FACTORIES[request.param]()


def test_predict_before_fit_raises(predictor: LatencyPredictor) -> None:
    with pytest.raises(NotFittedError):
        predictor.predict(CELLS)


def test_prediction_has_one_finite_value_per_row(predictor: LatencyPredictor) -> None:
    prediction = predictor.fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN]).predict(CELLS)
    assert prediction.mean.shape == prediction.std.shape == (len(CELLS),)
    assert (prediction.mean > 0).all()
    assert (prediction.std >= 0).all()


def test_second_fit_forgets_the_first(predictor: LatencyPredictor) -> None:
    fresh = predictor.fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN]).predict(CELLS)
    predictor.fit(CELLS[N_TRAIN : 2 * N_TRAIN], 5 * TARGET_MS[N_TRAIN : 2 * N_TRAIN])
    again = predictor.fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN]).predict(CELLS)
    np.testing.assert_array_equal(fresh.mean, again.mean)
    np.testing.assert_array_equal(fresh.std, again.std)


def test_inputs_are_neither_changed_nor_kept(predictor: LatencyPredictor) -> None:
    choices, latency = CELLS[:N_TRAIN].copy(), TARGET_MS[:N_TRAIN].copy()
    before = predictor.fit(choices, latency).predict(CELLS)
    np.testing.assert_array_equal(choices, CELLS[:N_TRAIN])
    np.testing.assert_array_equal(latency, TARGET_MS[:N_TRAIN])
    choices[:], latency[:] = 0, 1
    np.testing.assert_array_equal(predictor.predict(CELLS).mean, before.mean)


def test_a_row_is_predicted_alike_alone_and_in_a_batch(predictor: LatencyPredictor) -> None:
    predictor.fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN])
    batch = predictor.predict(CELLS)
    alone = predictor.predict(CELLS[17:18])
    assert alone.mean[0] == pytest.approx(batch.mean[17], rel=1e-9)
    assert alone.std[0] == pytest.approx(batch.std[17], rel=1e-6)


def test_unit_of_the_latency_does_not_matter(predictor: LatencyPredictor) -> None:
    in_ms = predictor.fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN]).predict(CELLS)
    in_us = predictor.fit(CELLS[:N_TRAIN], 1000 * TARGET_MS[:N_TRAIN]).predict(CELLS)
    np.testing.assert_allclose(in_us.mean, 1000 * in_ms.mean, rtol=2e-3)


def test_constant_latency_is_predicted_as_such(predictor: LatencyPredictor) -> None:
    prediction = predictor.fit(CELLS[:N_TRAIN], np.full(N_TRAIN, 7.0)).predict(CELLS)
    np.testing.assert_allclose(prediction.mean, 7.0, rtol=0.05)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_latency_that_is_none_is_refused(predictor: LatencyPredictor, bad: float) -> None:
    latency = TARGET_MS[:N_TRAIN].copy()
    latency[3] = bad
    with pytest.raises(UserError, match="row 3"):
        predictor.fit(CELLS[:N_TRAIN], latency)


def test_rows_and_latencies_must_pair_up(predictor: LatencyPredictor) -> None:
    with pytest.raises(UserError, match="as many latencies"):
        predictor.fit(CELLS[:N_TRAIN], TARGET_MS[: N_TRAIN - 1])


@pytest.mark.parametrize("name", list(LATENCY_PREDICTORS))
def test_an_unknown_operation_is_refused_not_guessed(name: str) -> None:
    predictor = _latency(name).fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN])
    unknown = CELLS[:2].copy()
    unknown[1, 4] = 9
    with pytest.raises(UserError, match="decision 4 has the unknown value 9"):
        predictor.predict(unknown)


def test_additive_predictor_beats_its_baselines() -> None:
    errors = {}
    for name in LATENCY_PREDICTORS:
        mean = _latency(name).fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN]).predict(CELLS[N_TRAIN:]).mean
        errors[name] = float(np.abs(mean / TARGET_MS[N_TRAIN:] - 1).mean())
    assert errors["additive"] == min(errors.values())
    assert errors["additive"] < 0.04  # the noise alone is 1.6 %


def test_intervals_hold_about_what_they_promise() -> None:
    prediction = _latency("additive").fit(CELLS[:N_TRAIN], TARGET_MS[:N_TRAIN]).predict(CELLS[N_TRAIN:])
    inside = np.abs(prediction.mean - TARGET_MS[N_TRAIN:]) <= 1.645 * prediction.std
    assert 0.75 <= inside.mean() <= 1.0
    assert prediction.std.mean() < 0.5 * TARGET_MS.std()  # and they are not merely wide


def test_transfer_answers_for_networks_that_no_source_measured() -> None:
    sources, unseen = CELLS[:100], CELLS[100:]
    predictor = TRANSFER_PREDICTORS["transfer"](table_encoding(CELLS), sources, LATENCY_MS[:100, 1:])
    predictor.fit(CELLS[:8], TARGET_MS[:8])
    mean = predictor.predict(unseen).mean
    assert np.corrcoef(mean, TARGET_MS[100:])[0, 1] > 0.9


@pytest.mark.parametrize("name", ["pc_ridge", "nonneg_mix"])
def test_look_up_transfers_name_the_network_they_lack(name: str) -> None:
    predictor = TRANSFER_PREDICTORS[name](table_encoding(CELLS), CELLS[:100], LATENCY_MS[:100, 1:])
    predictor.fit(CELLS[:8], TARGET_MS[:8])
    missing = CELLS[100:101]
    with pytest.raises(UserError, match="no row with the choices"):
        predictor.predict(missing)
