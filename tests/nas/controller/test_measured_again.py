"""Limits that were missed on a busy machine: said so, and measured again by the same command."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nas.controller.finalists import seen_of
from nas.controller.runs import records
from nas.controller.runs.records import deployed_network, read_deployed, write_deployed
from nas.controller.undelivered import limits_missed
from nas.controller.values import Finalist
from nas.deploy.choosing import doubt_of
from nas.deploy.tried import Deployed, TriedDeployment, files_of
from nas.limits import Limits, Violation
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.measure.site import this_host
from nas.networks.description import NETWORK
from tests.nas.controller.finals import DATA, DEPLOYMENTS, finalist, session, tried

LIMITS = Limits.of(latency_ms=2.0)
RUN = Path("runs/my run")
BUSY = tried(DEPLOYMENTS[0], [session(1.0), session(1.1, attempts=(3.0,))], 0.9)
QUIET = tried(DEPLOYMENTS[0], [session(3.0), session(3.1)], 0.9)


def missed(t: TriedDeployment) -> str:
    assert t.measurement is not None
    return "" if t.measurement.keeps(2.0) else "too slow"


def with_doubt(file: TriedDeployment) -> Finalist:
    found = finalist(0, [file], LIMITS)
    return replace(found, deployed=replace(found.deployed, doubt=doubt_of(found.deployed.tried, missed)))


def test_the_error_says_that_the_machine_was_busy() -> None:
    error = limits_missed([with_doubt(BUSY)], LIMITS, RUN)
    assert "the machine was busy then (something else ran)" in str(error)
    assert "run the same command again" in str(error.hint)
    assert "busy" not in str(limits_missed([with_doubt(QUIET)], LIMITS, RUN))


def test_the_hint_is_the_command_that_delivers_the_nearest_file() -> None:
    file = tried(DEPLOYMENTS[0], [session(3.0), session(3.1004)], 0.9)
    hint = str(limits_missed([with_doubt(file)], LIMITS, RUN).hint)
    assert hint.startswith("run `nas search --run 'runs/my run' --latency-ms 3.2` to have that one; or ask for a")
    two = Limits.of(latency_ms=2.0, max_size_mb=1e-9)
    both = finalist(0, [file], two)
    assert {v.name for v in both.violations} == {"latency_ms", "max_size_mb"}
    assert "--run" not in str(limits_missed([both], two, RUN).hint), "one limit alone would not be enough"


def test_where_nothing_was_trained_the_error_tells_what_was_measured_before() -> None:
    untrained = [Violation("latency_ms", value, "too slow") for value in (2.7, 2.2)]
    error = limits_missed([], LIMITS, RUN, untrained)
    assert str(error) == "no candidate kept 2 ms when it was measured before its training; the nearest came to 2.2 ms"
    assert str(error.hint).startswith("ask for a higher --latency-ms"), "there is no file to deliver"
    assert str(limits_missed([], LIMITS, RUN)) == "no candidate kept 2 ms by what was predicted for it"
    file = tried(DEPLOYMENTS[0], [session(3.0)], 0.9)
    assert "the nearest came to 3 ms" in str(limits_missed([with_doubt(file)], LIMITS, RUN, untrained))


def test_a_file_that_lost_too_much_is_not_the_nearest() -> None:
    exact, rounded = DEPLOYMENTS[1], DEPLOYMENTS[0]
    files = [tried(exact, [session(3.0)], 0.9), tried(rounded, [session(2.1)], 0.5)]
    assert "the nearest came to 3 ms" in str(limits_missed([finalist(0, files, LIMITS)], LIMITS, RUN))
    files[1] = tried(rounded, [session(2.1)], 0.89)
    assert "the nearest came to 2.1 ms" in str(limits_missed([finalist(0, files, LIMITS)], LIMITS, RUN))


def test_a_miss_is_doubted_where_the_quiet_sessions_keep_the_limit() -> None:
    assert doubt_of([BUSY], missed) == "something else ran"
    assert doubt_of([QUIET, BUSY], missed) == "something else ran"
    assert doubt_of([QUIET], missed) is None
    far = tried(DEPLOYMENTS[0], [session(3.0), session(3.1, attempts=(5.0,))], 0.9)
    assert doubt_of([far], missed) is None, "its quiet session is over the limit as well"
    never = tried(DEPLOYMENTS[0], [session(1.9, attempts=(3.0,)), session(2.4, attempts=(3.0,))], 0.9)
    assert doubt_of([never], missed) == "something else ran"
    assert doubt_of([BUSY], lambda t: "too large") is None, "nor is it the time that is in the way"
    assert doubt_of([replace(BUSY, chosen=True)], missed) is None


@pytest.mark.parametrize(("file", "again"), [(BUSY, True), (QUIET, False)])
def test_what_was_measured_in_vain_is_measured_again(
    file: Any, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = finalist(0, [file, QUIET], LIMITS).deployed
    asked: list[int] = []
    written: list[Deployed] = []

    def measure(requests: Sequence[MeasureRequest], **_: Any) -> list[Measurement]:
        asked.append(len(requests))
        return [summarise(request, [session(1.0)], None, 1.0) for request in requests]

    monkeypatch.setattr(records, "read_deployed", lambda *_: before)
    monkeypatch.setattr(records, "write_deployed", lambda folder, deployed, site: written.append(deployed))
    monkeypatch.setattr(records, "deploy", None)  # nothing is exported again
    site = replace(this_host(), measure=measure)
    found = deployed_network(
        tmp_path, None, before.description, DATA, DEPLOYMENTS[:1],  # type: ignore[arg-type]
        max_drop=0.05, rejection=missed, site=site,
    )  # fmt: skip
    assert asked == [2] * again
    assert (found.chosen is not None) == again
    assert len(written) == again


@pytest.mark.parametrize(
    ("limits", "calls", "again", "delivered"),
    [
        (Limits.of(latency_ms=2.0), 50, False, True),
        (Limits.of(latency_ms=2.0, percentile=90), 50, True, False),
        (Limits.of(latency_ms=2.0, percentile=90), 100, False, True),
        (Limits.of(latency_ms=2.0, percentile=99), 50, True, False),
        (Limits.of(latency_ms=2.0, percentile=99), 299, True, False),
        (Limits.of(latency_ms=2.0, percentile=99), 300, False, True),
        (Limits.of(latency_ms=0.5, percentile=99), 50, False, False),
        (Limits.of(latency_ms=3.0, percentile=99), 50, True, True),
    ],
)
def test_slow_calls_of_which_too_few_were_timed_are_measured_again(
    limits: Limits, calls: int, again: bool, delivered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More calls show slower ones. The second file exceeds every limit by the few."""

    def few(p50_ms: float) -> list[SessionTiming]:
        enough = session(p50_ms)
        return [enough, replace(enough, calls=calls, p99_upper_ms=enough.p99_upper_ms if calls >= 100 else None)]

    files = [
        tried(deployment, few(p50_ms), 0.9, path=tmp_path / f"{deployment.name}.onnx")
        for deployment, p50_ms in zip(DEPLOYMENTS[:2], (1.0, 9.0), strict=True)
    ]
    for path in (*(t.path for t in files if t.path), tmp_path / "model.onnx", *files_of(tmp_path / NETWORK)):
        path.write_text(path.name)
    asked: list[list[Path]] = []

    def measure(requests: Sequence[MeasureRequest], **_: Any) -> list[Measurement]:
        asked.append([request.path for request in requests])
        return [summarise(request, [session(1.0, tail=2.5)] * 3, None, 1.0) for request in requests]

    def rejection(t: TriedDeployment) -> str:
        return "; ".join(v.reason for v in limits.violations(seen_of(t, limits, None, None)))

    known = replace(finalist(0, files, limits).deployed, onnx=tmp_path / "model.onnx")
    site = replace(this_host(), measure=measure)
    write_deployed(tmp_path, known, site)
    monkeypatch.setattr(records, "deploy", None)  # nothing is exported again

    def found() -> Deployed:
        return deployed_network(
            tmp_path, None, known.description, DATA, DEPLOYMENTS[:2],  # type: ignore[arg-type]
            max_drop=0.05, rejection=rejection, site=site, least_calls=limits.least_calls,
        )  # fmt: skip

    chosen = found().chosen
    assert asked == [[files[0].path]] * again, "no other file could be chosen"
    assert (chosen is not None) == delivered
    assert found().chosen == chosen
    assert len(asked) == again, "what was measured is recorded"
    recorded = read_deployed(tmp_path, known.description, DEPLOYMENTS[:2], site)
    assert recorded is not None
    slower = recorded.tried[1].measurement
    assert slower is not None
    assert slower.sessions == tuple(few(9.0))
