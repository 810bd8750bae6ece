import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.measure.statistics import (
    Activity,
    disturbance,
    disturbance_with_pauses,
    drift_corrected,
    lower_percentile,
    percentiles,
    spread_pct,
    upper_percentile,
)

TIMES = st.lists(st.floats(1e-6, 10), min_size=1, max_size=50)


def _activity(**changes: float | None) -> Activity:
    quiet = {"wall_s": 1.0, "cpu_s": 0.999, "waiting_s": 0.001, "steal_s": 0.0, "involuntary_switches": 3}
    return Activity(**(quiet | changes))  # type: ignore[arg-type]


@given(TIMES)
def test_percentiles_are_ordered_and_within_the_times(times: list[float]) -> None:
    p50, p90, p99 = percentiles(times)
    assert min(times) <= p50 <= p90 <= p99 <= max(times)


def test_percentiles_of_a_known_sequence() -> None:
    assert percentiles(list(range(101))) == (50, 90, 99)
    with pytest.raises(ValueError, match="no times"):
        percentiles([])


def test_spread() -> None:
    assert spread_pct([10.0, 10.2, 9.9]) == pytest.approx(3.0)
    assert spread_pct([4.0]) == 0


@given(TIMES, st.floats(0.5, 2))
def test_drift_that_hits_network_and_reference_alike_is_removed(drifts: list[float], latency: float) -> None:
    sessions = [latency * drift for drift in drifts]
    references = [0.7 * drift for drift in drifts]
    assert drift_corrected(sessions, references, usual_reference=0.7) == pytest.approx(latency)


@pytest.mark.parametrize(
    ("activity", "threads", "words"),
    [
        (_activity(), 1, None),
        (_activity(cpu_s=0.5), 1, "50% of the time was spent computing"),
        (_activity(cpu_s=1.2), 2, None),  # two threads may wait for each other
        (_activity(cpu_s=1.2, waiting_s=0.3), 2, "waited for a core 15%"),
        (_activity(steal_s=0.1), 1, "hypervisor took 10%"),
        (_activity(steal_s=0.01), 1, None),  # one tick of the kernel's clock
        (_activity(involuntary_switches=400), 1, "400 times per second"),
        (_activity(waiting_s=None), 1, None),
        (_activity(wall_s=0.0), 1, None),
    ],
)
def test_disturbance(activity: Activity, threads: int, words: str | None) -> None:
    reason = disturbance(activity, threads)
    assert reason is None if words is None else words in (reason or "")


def test_activities_add_up() -> None:
    total = _activity() + _activity(waiting_s=0.5)
    assert (total.wall_s, total.involuntary_switches) == (2.0, 6)
    assert total.waiting_s == pytest.approx(0.501)
    assert (_activity(waiting_s=None) + _activity(waiting_s=None)).waiting_s is None


def test_percentiles_take_numpy_floats() -> None:
    assert all(isinstance(value, float) for value in percentiles(list(np.array([1.0, 2.0]))))


@pytest.mark.parametrize(
    ("waiting_s", "steal_s", "words"), [(0.01, 0.0, None), (0.05, 0.0, "waited for a core"), (0.0, 0.2, "hypervisor")]
)
def test_rests_between_calls_are_no_disturbance(waiting_s: float, steal_s: float, words: str | None) -> None:
    """A process that computes 2 % of the time was not kept from it."""
    activity = Activity(wall_s=1.0, cpu_s=0.02, waiting_s=waiting_s, steal_s=steal_s)
    found = disturbance_with_pauses(activity, threads=1)
    assert (found is None) if words is None else (found is not None and words in found)
    assert disturbance(activity, threads=1) is not None


@pytest.mark.parametrize(("percentile", "calls"), [(90, 100), (99, 300), (90, 2000), (99, 1000)])
def test_three_sessions_are_all_below_a_percentile_in_five_of_a_hundred_cases(percentile: int, calls: int) -> None:
    rng = np.random.default_rng(percentile + calls)
    true = float(np.quantile(rng.lognormal(sigma=0.5, size=2_000_000), percentile / 100))
    below = np.array(
        [(upper_percentile(rng.lognormal(sigma=0.5, size=calls).tolist(), percentile) or 0) < true for _ in range(900)]
    )
    assert below.reshape(300, 3).all(axis=1).mean() < 0.08
    assert below.mean() > 0.15, "a bound that is always above says nothing"


@given(TIMES, st.sampled_from([50, 90, 99]))
def test_an_upper_bound_is_one_of_the_times(times: list[float], percentile: int) -> None:
    upper = upper_percentile(times, percentile)
    assert upper is None or (upper in times and upper >= np.quantile(times, percentile / 100, method="lower"))


@given(TIMES, st.sampled_from([50, 90, 99]))
def test_bounds_lie_around_a_percentile(times: list[float], percentile: int) -> None:
    lower, upper = lower_percentile(times, percentile), upper_percentile(times, percentile)
    assert lower is None or (lower in times and lower <= np.quantile(times, percentile / 100, method="higher"))
    assert lower is None or upper is None or lower <= upper


def test_three_sessions_are_all_above_a_percentile_in_five_of_a_hundred_cases() -> None:
    rng = np.random.default_rng(3)
    true = float(np.quantile(rng.lognormal(sigma=0.5, size=2_000_000), 0.99))
    above = np.array(
        [(lower_percentile(rng.lognormal(sigma=0.5, size=600).tolist(), 99) or 0) > true for _ in range(900)]
    )
    assert above.reshape(300, 3).all(axis=1).mean() < 0.08
    assert above.mean() > 0.15, "a bound that is always below says nothing"


def test_few_calls_bound_no_slow_one() -> None:
    assert upper_percentile([1.0] * 99, 99) is None
    assert upper_percentile(list(range(100)), 99) == 99
    assert upper_percentile(list(range(300)), 99) == 298, "of 300, three are slower; of that many two with 80 %"
    assert upper_percentile([1.0, 2.0], 99, confidence=0.01) == 2.0
