"""When requests start, and what they send."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas.loadtest.generator import closed, opened
from nas.loadtest.plan import ClosedLoop, Job, OpenLoop, poisson_arrivals_s


@given(rate=st.floats(0.5, 500), seconds=st.floats(0.1, 5), seed=st.integers(0, 100))
def test_arrivals_lie_in_their_time_in_order(rate: float, seconds: float, seed: int) -> None:
    times = poisson_arrivals_s(rate, seconds, np.random.default_rng(seed))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < seconds)).all()


def test_arrivals_are_a_poisson_process() -> None:
    times = poisson_arrivals_s(200.0, 1000.0, np.random.default_rng(0))
    by_second = np.histogram(times, bins=1000, range=(0, 1000))[0]
    assert abs(by_second.mean() - 200) < 3 * np.sqrt(200 / 1000)
    assert 0.9 < by_second.var() / by_second.mean() < 1.1  # of a Poisson process the variance is the mean
    gaps = np.diff(times)
    assert abs(np.mean(gaps > 1 / 200) - np.exp(-1)) < 0.01


def test_a_seed_gives_the_same_load_and_another_one_does_not() -> None:
    load, images = OpenLoop(rate_per_s=100.0, seconds=2.0), np.arange(7)
    assert opened(load, 10.0, images, 3) == opened(load, 10.0, images, 3)
    assert opened(load, 10.0, images, 3) != opened(load, 10.0, images, 4)


def test_a_client_asks_again_when_it_is_answered_until_time_is_up_and_waits_after_a_failure() -> None:
    images = np.arange(100)
    first, following = closed(ClosedLoop(clients=3, seconds=5.0, warm_up_s=1.0), 10.0, images)
    assert first == [(10.0, 0), (10.0, 1), (10.0, 2)]
    assert following(11.5, True) == (11.5, 3)
    after = following(12.0, False)
    assert after is not None
    assert after[0] > 12.0
    assert after[1] == 4
    assert following(16.0, True) is None


def test_a_job_is_read_as_it_was_written() -> None:
    for load in (ClosedLoop(clients=3, seconds=1.5), OpenLoop(rate_per_s=9.5, seconds=2.0, warm_up_s=0.0)):
        job = Job(host="127.0.0.1", port=80, load=load, reader="label", seed=1, timeout_s=2.0)
        assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job
