"""The search for a rate, and its confirmation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.loadtest.outcome import Trial
from nas.loadtest.plan import OpenLoop
from nas.loadtest.rate_search import PRECISION, largest_rate
from nas.loadtest.rate_trials import confirm_rate, long_enough, search_rate
from nas.loadtest.records import OK, Records
from nas.measure.statistics import Activity


@given(limit=st.floats(12.0, 109.0))
def test_the_rate_found_is_kept_and_the_best_within_the_precision(limit: float) -> None:
    tried: list[float] = []

    def keeps(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = largest_rate(keeps, above=110.0, trials=20)
    assert found is not None
    assert found <= limit
    assert limit - found <= PRECISION * 110
    assert len(tried) == len(set(tried)) <= 20


def test_nothing_is_found_where_nothing_is_kept_and_the_trials_are_counted() -> None:
    tried: list[float] = []
    assert largest_rate(lambda rate: bool(tried.append(rate)), above=100.0, trials=8) is None
    assert largest_rate(lambda rate: True, above=0.0) is None, "of a server that gave no right answer"
    assert 3 < len(tried) <= 8
    assert min(tried) > 4


def trial(load: OpenLoop, latency_ms: float, *, cpu_share: float = 0.1, gone: bool = False) -> Trial:
    count = 2000
    due_s = np.linspace(0, load.seconds, count, endpoint=False)
    records = Records(
        due_s=due_s, sent_s=due_s, done_s=due_s + latency_ms / 1e3, code=np.full(count, OK, np.int16),
        image=np.zeros(count, np.int32),
    )  # fmt: skip
    activity = Activity(wall_s=10.0, cpu_s=10.0 * cpu_share)
    return Trial(load=load, slo_ms=10.0, records=records, activity=activity, gone=gone)


def test_a_trial_that_failed_and_is_invalid_is_made_again() -> None:
    seeds: list[int] = []

    def attempt(load: OpenLoop, seed: int) -> Trial:
        seeds.append(seed)
        disturbed = len(seeds) == 1
        return trial(load, 20.0 if disturbed or load.rate_per_s > 60 else 5.0, cpu_share=0.9 if disturbed else 0.1)

    found = search_rate(100.0, 10.0, attempt, trials=1)
    assert len(seeds) == 2
    assert len(set(seeds)) == 2
    assert found.rate_per_s is None


def test_a_valid_trial_counts_the_first_time() -> None:
    made: list[float] = []

    def attempt(load: OpenLoop, seed: int) -> Trial:
        made.append(load.rate_per_s)
        return trial(load, 5.0 if load.rate_per_s <= 60 else 20.0)

    found = search_rate(100.0, 10.0, attempt)
    assert found.rate_per_s == pytest.approx(60, rel=0.03)
    assert len(made) == len(found.searched) == len(set(made))


def test_a_rate_counts_that_every_fresh_server_keeps() -> None:
    good = search_rate(100.0, 10.0, lambda load, seed: trial(load, 5.0), trials=1)
    assert good.rate_per_s is not None
    weak = 0.93 * good.rate_per_s

    def strong_server(load: OpenLoop, seed: int) -> Trial:
        return trial(load, 5.0)

    def weak_server(load: OpenLoop, seed: int) -> Trial:
        return trial(load, 5.0 if load.rate_per_s <= weak else 20.0)

    confirmed = confirm_rate(good, 10.0, [strong_server, weak_server])
    assert confirmed.rate_per_s == pytest.approx(0.95**2 * good.rate_per_s)
    assert len(confirmed.confirmed) == 2
    assert confirm_rate(good, 10.0, [lambda load, seed: trial(load, 20.0)]).rate_per_s is None


def test_low_rates_are_tried_for_longer() -> None:
    assert long_enough(1000.0, 10.0) == 10.0
    assert long_enough(10.0, 10.0) * 10.0 > 459
