"""Limits that were missed on a busy machine: said so, and measured again by the same command."""

from pathlib import Path
from typing import Any

import pytest

from nas.controller.finalists import limits_missed
from nas.controller.runs import records
from nas.controller.runs.records import deployed_network
from nas.deploy.choosing import no_rejection
from nas.limits import Limits
from tests.nas.controller.finals import DATA, DEPLOYMENTS, finalist, session, tried

LIMITS = Limits.of(latency_ms=2.0)
BUSY = tried(DEPLOYMENTS[0], [session(1.0), session(1.1, attempts=(3.0,))], 0.9)
QUIET = tried(DEPLOYMENTS[0], [session(3.0), session(3.1)], 0.9)


def test_the_error_says_that_the_machine_was_busy() -> None:
    error = limits_missed([finalist(0, [BUSY], LIMITS)], LIMITS)
    assert "the machine was busy then (something else ran)" in str(error)
    assert "run the same command again" in str(error.hint)
    assert "busy" not in str(limits_missed([finalist(0, [QUIET], LIMITS)], LIMITS))


def test_nothing_is_doubted_where_a_file_keeps_the_limit() -> None:
    other = tried(DEPLOYMENTS[1], [session(1.5), session(1.5)], 0.9)
    assert finalist(0, [BUSY, other], LIMITS).deployed.doubt is None
    assert finalist(0, [BUSY], LIMITS).deployed.doubt == "something else ran"
    assert finalist(0, [QUIET], LIMITS).deployed.doubt is None


@pytest.mark.parametrize(("file", "again"), [(BUSY, True), (QUIET, False)])
def test_what_was_measured_in_vain_is_measured_again(
    file: Any, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = finalist(0, [file], LIMITS).deployed
    measured: list[Path] = []

    def deploy(*_: Any, folder: Path, **__: Any) -> Any:
        measured.append(folder)
        return before

    monkeypatch.setattr(records, "read_deployed", lambda *_: before)
    monkeypatch.setattr(records, "write_deployed", lambda *_: None)
    monkeypatch.setattr(records, "deploy", deploy)

    def missed(t: Any) -> str:
        return "too slow" if not t.measurement.keeps(2.0) else no_rejection(t)

    deployed_network(
        tmp_path, None, before.description, DATA, DEPLOYMENTS[:1],  # type: ignore[arg-type]
        max_drop=0.05, rejection=missed, site=None,
    )  # fmt: skip
    assert measured == [tmp_path] * again
