"""What is made of a trial's records."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nas.loadtest.outcome import Trial, fewest_requests, keeps, quantiles_ms, trial_document, variation, why_invalid
from nas.loadtest.plan import ClosedLoop, OpenLoop
from nas.loadtest.records import NO_SOCKET, OK, TIMED_OUT, WRONG, Records
from nas.measure.statistics import Activity
from nas.report.document import to_json

QUIET = Activity(wall_s=11.0, cpu_s=1.0)


def trial(count: int = 1000, **changes: Any) -> Trial:
    """10 s with evenly spaced requests that take 5 ms, and one before them."""
    due_s = np.concatenate([[-0.5], np.linspace(0, 10, count, endpoint=False)])
    records = Records(
        due_s=due_s, sent_s=due_s + 1e-5, done_s=due_s + 5e-3, code=np.full(count + 1, OK, np.int16),
        image=np.zeros(count + 1, np.int32),
    )  # fmt: skip
    load = OpenLoop(rate_per_s=count / 10, seconds=10.0)
    return replace(Trial(load=load, slo_ms=10.0, records=records, activity=QUIET), **changes)


def failing(some: Trial, code: int, number: int) -> Trial:
    codes = some.records.code.copy()
    codes[1 : 1 + number] = code
    return replace(some, records=replace(some.records, code=codes))


def test_requests_of_the_warm_up_do_not_count() -> None:
    document = trial_document(trial())
    assert (document["n"], document["over"], document["images_per_s"]) == (1000, 0, 100.0)
    assert document["latency_ms"]["p50"] == pytest.approx(5.0)
    assert document["valid"]
    assert document["keeps_slo"]


@pytest.mark.parametrize(
    ("over", "requests"), [(0, 459), (1, 662), (2, 838), (5, 1307), (10, 2010), (20, 3304), (50, 6898)]
)
def test_late_answers_are_forgiven_among_as_many_as_mlperf_demands(over: int, requests: int) -> None:
    def kept(count: int) -> bool:
        return keeps(np.array([11.0] * over + [1.0] * (count - over), np.float32), 10.0)

    assert kept(requests)
    assert not kept(requests - 1)
    assert fewest_requests(over) == requests


def test_failures_are_late_and_no_throughput() -> None:
    document = trial_document(failing(trial(), 503, 20))
    assert (document["over"], document["failures"], document["images_per_s"]) == (20, {"503": 20}, 98.0)
    assert not document["keeps_slo"]
    assert document["valid"]  # the server's fault, well measured
    assert json.loads(to_json(document))["latency_ms"]["p99"] is None
    assert json.loads(to_json(document))["latency_ms"]["p90"] == pytest.approx(5.0)


def test_a_trial_that_was_ended_early_counts_the_time_it_had_and_keeps_nothing() -> None:
    some = trial()
    ended = replace(some, stopped_s=5.0, records=some.records.where(some.records.due_s < 4.99))
    assert ended.images_per_s == pytest.approx(100, rel=0.01)
    assert some.keeps_slo
    assert not ended.keeps_slo


def test_an_empty_trial_keeps_nothing() -> None:
    nothing = trial().records.where(np.zeros(1001, bool))
    document = trial_document(trial(records=nothing))
    assert (document["keeps_slo"], document["n"], document["valid"]) == (False, 0, False)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gone": True}, "the server was gone before the end"),
        ({"activity": Activity(wall_s=10.0, cpu_s=8.5)}, "the load generator itself used 85% of its core"),
        ({"activity": Activity(wall_s=10.0, cpu_s=1.0, steal_s=1.0)}, "the hypervisor took 10% of the time"),
        ({"others_share": 0.2}, "other programs used 20% of the machine"),
    ],
)
def test_what_makes_a_trial_invalid_is_said(changes: dict[str, Any], said: str) -> None:
    assert why_invalid(trial()) == []
    assert why_invalid(trial(**changes)) == [said]


def test_a_late_generator_makes_a_trial_invalid_by_the_limit_that_is_asked_for() -> None:
    some = trial()
    late = replace(some, records=replace(some.records, sent_s=some.records.due_s + 2e-3))
    assert why_invalid(late) == ["1 % of the requests were sent more than 2 ms late, 1 ms is allowed"]
    assert why_invalid(replace(late, slo_ms=100.0)) == []


def test_a_single_wrong_answer_makes_a_trial_invalid() -> None:
    assert why_invalid(failing(trial(), WRONG, 1)) == ["1 of 1000 answers were wrong"]
    assert why_invalid(failing(trial(), NO_SOCKET, 3)) == ["for 3 requests this system gave no further connection"]
    assert why_invalid(failing(trial(), TIMED_OUT, 3)) == []


def test_throughput_of_each_second_varies_by_what_it_varies() -> None:
    assert trial().cv_1s == pytest.approx(0.0)
    some = trial()
    assert replace(some, load=ClosedLoop(clients=1, seconds=2.9)).cv_1s is None
    half = failing(some, 503, 500)  # nothing in the first five seconds
    assert half.cv_1s == pytest.approx(np.std([0] * 5 + [100] * 5, ddof=1) / 50)


def test_variation_of_too_little_is_unknown() -> None:
    assert variation([1.0]) is None
    assert variation([0.0, 0.0]) is None
    assert variation([1.0, 3.0]) == pytest.approx(np.sqrt(2) / 2)


def test_percentiles_are_latencies_that_were_seen() -> None:
    latencies = np.arange(1, 1001, dtype=np.float32)
    assert quantiles_ms(latencies) == {"p50": 500.0, "p90": 900.0, "p99": 990.0, "p999": 999.0}
