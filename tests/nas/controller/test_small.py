"""Networks that are timed because a limit asks for such small ones."""

import numpy as np

from nas.controller.prediction.small import NETWORKS, small_networks
from nas.limits import Limits
from nas.targets.latency import LatencyModel
from search_spaces import load_search_space
from tests.nas.fake_device import FP32, INT8, fake_profile

MIXED = load_search_space("mixed")
PROFILE = fake_profile(networks=60)
MODEL = LatencyModel(PROFILE, [FP32, INT8])


def test_they_reach_from_the_fastest_to_one_that_takes_the_limit() -> None:
    sampled = MIXED.sample(2000, np.random.default_rng(1))
    random_ms = np.sort(MODEL.fastest(MIXED, sampled, (10,))[1].mean)
    limit_ms = float(0.8 * random_ms[0])
    found = small_networks(MIXED, MODEL, PROFILE, (10,), Limits.of(latency_ms=limit_ms))
    assert len(found) == NETWORKS
    taken_ms = MODEL.fastest(MIXED, MIXED.choices(found), (10,))[1].mean
    assert taken_ms[0] < taken_ms[1] < taken_ms[2]
    np.testing.assert_allclose(taken_ms[2], limit_ms, rtol=0.05)
    np.testing.assert_allclose(taken_ms[1] ** 2, taken_ms[0] * taken_ms[2], rtol=0.05)
    again = small_networks(MIXED, MODEL, PROFILE, (10,), Limits.of(latency_ms=limit_ms))
    assert [a.key for a in again] == [a.key for a in found]


def test_none_where_the_profile_tells_of_them_or_no_call_is_limited() -> None:
    tables = [PROFILE.table(d) for d in (FP32, INT8)]
    largest_ms = max(float(t.column("latency_ms").max()) for t in tables if t is not None)
    assert small_networks(MIXED, MODEL, PROFILE, (10,), Limits.of(latency_ms=largest_ms)) == []
    assert small_networks(MIXED, MODEL, PROFILE, (10,), Limits.of(max_params=1e6)) == []
