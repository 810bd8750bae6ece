"""What the result document says of every file that was tried: what was judged, and whether latency alone spoke
against it."""

from dataclasses import replace

import numpy as np
import pytest

from nas.controller.results.judged import beaten_finalists, judged_finalist
from nas.deploy.answers import Answers
from nas.limits import Limits
from nas.tasks.floor import Floor
from tests.nas.controller.finals import DEPLOYMENTS, finalist, outcome, session, tried

FAST, SLOW, OTHER = DEPLOYMENTS


def test_the_judged_value_is_of_the_limited_percentile_and_of_every_attempt() -> None:
    files = [tried(FAST, [session(1.0), session(1.1, attempts=[1.6]), session(0.9)], 0.8)]
    for limits, judged, call in (
        (Limits.of(latency_ms=4.0), 1.6, 1.0),
        (Limits.of(latency_ms=4.0, percentile=90), 1.6 * 1.35, 1.35),
        (Limits.of(latency_ms=4.0, percentile=99), 1.6 * 1.5, 1.5),
        (Limits.of(max_size_mb=2.0), 1.6, 1.0),
    ):
        found = finalist(0, files, limits)
        (row,) = judged_finalist(outcome([found], [found], limits), found)["deployments"]
        assert row["judged_ms"] == pytest.approx(judged)
        assert row["call_ms"] == pytest.approx(call) == found.call_ms
        assert row["images_per_s"] == pytest.approx(1000.0) == found.images_per_s


def test_latency_alone_is_told_from_every_other_reason() -> None:
    limits = Limits.of(latency_ms=2.0, max_size_mb=5.0)
    files = [
        tried(FAST, [session(1.0)], 0.80),
        tried(SLOW, [session(3.0)], 0.82),
        tried(OTHER, [session(3.0)], 0.82, size_bytes=6_000_000),
        replace(tried(replace(FAST, runtime="torch"), [session(3.0)], 0.7)),
        replace(tried(replace(SLOW, runtime="torch"), [session(3.0)], 0.8), path=None, reason="could not be prepared"),
    ]
    found = finalist(0, files, limits)
    rows = judged_finalist(outcome([found], [found], limits), found)["deployments"]
    assert [row["accepted"] for row in rows] == [True, False, False, False, False]
    assert [row["latency_alone"] for row in rows] == [False, True, False, False, False]


def test_a_winner_that_was_delivered_still_tells_of_all_its_files() -> None:
    limits = Limits.of(latency_ms=2.0)
    found = finalist(0, [tried(FAST, [session(1.0)], 0.80), tried(SLOW, [session(3.0)], 0.82)], limits)
    own = tuple(t if t.chosen else replace(t, path=None) for t in found.deployed.tried)
    delivered = replace(found, deployed=replace(found.deployed, tried=own))
    rows = judged_finalist(outcome([found], [delivered], limits), delivered)["deployments"]
    assert [row["latency_alone"] for row in rows] == [False, True]


def test_networks_that_did_not_win_are_in_the_document() -> None:
    limits = Limits.of(latency_ms=2.0)
    won, beaten, missed = (
        finalist(n, [tried(FAST, [session(ms)], accuracy)], limits)
        for n, (ms, accuracy) in enumerate(((1.0, 0.9), (0.5, 0.8), (3.0, 0.95)))
    )
    rows = beaten_finalists(outcome([missed, won, beaten], [won], limits))
    assert [row["key"] for row in rows] == [missed.evaluated.arch.key, beaten.evaluated.arch.key]
    assert [row["within_limit"] for row in rows] == [False, True]
    assert [row["accuracy"] for row in rows] == [
        {"trained": 0.95, "deployed": None},
        {"trained": 0.8, "deployed": 0.8},
    ]
    assert all(row["folder"].startswith("finalists/mobile-") for row in rows)
    assert rows[0]["deployments"][0]["latency_alone"]


def test_a_file_says_by_how_much_it_may_be_below_each_more_accurate_one() -> None:
    limits = Limits.of(latency_ms=2.0)
    known = [np.arange(100) < 90, np.arange(100) < 86]
    files = [
        tried(deployment, [session(1.0)], hits.mean(), answers=Answers.of(hits))
        for deployment, hits in zip((FAST, SLOW), known, strict=True)
    ]
    files.append(tried(OTHER, [session(1.0)], 0.88))
    found = finalist(0, files, limits)
    told = judged_finalist(outcome([found], [found], limits), found)
    best, second, third = (row["ties"] for row in told["deployments"])
    assert best == {}
    assert second == {FAST.name: pytest.approx((5 - 4**2 / 102) ** 0.5 / 102), OTHER.name: told["slack"]}
    assert third == {FAST.name: told["slack"]}
    fastest = judged_finalist(outcome([found], [found], limits, "latency"), found)
    assert [row["ties"] for row in fastest["deployments"]] == [{}, {}, {}]


def test_slack_is_the_objectives_and_worth_is_of_the_floors() -> None:
    limits = Limits.of(latency_ms=2.0)
    found = finalist(0, [tried(FAST, [session(1.0)], 0.40)], limits)
    told = judged_finalist(outcome([found], [found], limits), found)
    p = (0.40 * 12 + 1) / 14
    assert told["slack"] == pytest.approx((p * (1 - p) / 12) ** 0.5)
    assert told["deployments"][0]["worth_it"]
    assert judged_finalist(outcome([found], [found], limits, "latency"), found)["slack"] is None
    floor = Floor(name="guessing", accuracy=0.5, test=None, margin=0.0, seconds=0.1)
    known = outcome([found], [found], limits)
    known.floors = (floor,)  # type: ignore[misc]
    assert not judged_finalist(known, found)["deployments"][0]["worth_it"]
    known.interrupted = True  # type: ignore[misc]
    assert judged_finalist(known, found)["deployments"][0]["worth_it"]
