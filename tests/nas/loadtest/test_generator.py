"""The generator's process against servers of which it is known what they do.

The machine may be busy with other tests, so nothing here asks that a time be short.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from experiments.known_server import Known, known_server
from nas.errors import UserError
from nas.loadtest import generator
from nas.loadtest.answers import LABEL, label_text
from nas.loadtest.outcome import Trial, trial_document, why_invalid
from nas.loadtest.plan import ClosedLoop, Load, OpenLoop, poisson_arrivals_s
from nas.loadtest.trial import Conversation, run_trial
from nas.measure import procfs

REQUEST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000


def loaded(server: Known, load: Load, timeout_s: float = 5.0, most_late: int | None = None) -> Trial:
    conversation = Conversation(
        host="127.0.0.1", port=server.port, requests=[REQUEST], expected=[label_text("cat")], reader=LABEL,
        server_pid=server.pid,
    )  # fmt: skip
    return run_trial(conversation, load, slo_ms=10.0, timeout_s=timeout_s, most_late=most_late)


def test_an_open_loop_does_not_wait_for_a_server_that_stalls() -> None:
    rate, seconds, stall_s = 100.0, 2.0, 0.5
    with known_server(stall_every_s=1.0, stall_s=stall_s) as server:
        trial = loaded(server, OpenLoop(rate_per_s=rate, seconds=seconds, warm_up_s=0.5))
    due_s = np.sort(trial.records.due_s)
    assert due_s + 0.5 == pytest.approx(poisson_arrivals_s(rate, 0.5 + seconds, np.random.default_rng([0, 0])))
    # Half of the time the server stalls, and who comes then waits for the rest of the stall.
    waited = trial.counted.latency_ms
    assert np.mean(waited > 1e3 * stall_s / 2) > 0.15
    assert waited.max() > 0.8e3 * stall_s
    assert not trial.keeps_slo


def test_a_closed_loop_with_one_client_sees_each_stall_once() -> None:
    with known_server(stall_every_s=1.0, stall_s=0.5) as server:
        trial = loaded(server, ClosedLoop(clients=1, seconds=2.0, warm_up_s=0.0))
    assert 1 <= np.sum(trial.counted.latency_ms > 400) <= 3
    assert len(trial.counted) > 20


def test_a_queue_in_the_server_is_waited_for() -> None:
    service_s, rate = 0.004, 125.0
    with known_server(service_s=service_s) as server:
        trial = loaded(server, OpenLoop(rate_per_s=rate, seconds=3.0, warm_up_s=0.5))
    load = rate * service_s
    wait_s = load * service_s / (2 * (1 - load))  # M/D/1
    assert trial.counted.latency_ms.min() >= 1e3 * service_s * 0.99
    assert trial.counted.latency_ms.mean() >= 1e3 * (service_s + 0.5 * wait_s)


def test_every_kind_of_failure_is_counted_and_nothing_is_absent() -> None:
    load = OpenLoop(rate_per_s=150.0, seconds=2.0, warm_up_s=0.2)
    with known_server(lost_every=50, busy_every=7, wrong_every=31, close_every=3) as server:
        trial = loaded(server, load, timeout_s=0.5)
    document = trial_document(trial)
    assert len(trial.records) == len(poisson_arrivals_s(150.0, 2.2, np.random.default_rng([0, 0])))
    assert document["failures"].keys() == {"503", "timeout", "wrong answer"}
    assert sum(document["failures"].values()) == document["over"] - np.sum(
        (trial.counted.latency_ms > 10.0) & trial.counted.ok
    )
    lost = trial.records.code == 3
    assert (trial.records.done_s - trial.records.due_s)[lost].min() >= 0.5
    assert not document["valid"]
    assert document["phases_ms"] == {"infer": 1.0}


def test_a_trial_ends_when_its_limit_cannot_be_kept_any_more() -> None:
    with known_server(service_s=0.02) as server:
        trial = loaded(server, OpenLoop(rate_per_s=25.0, seconds=60.0, warm_up_s=0.0), most_late=5)
    assert trial.stopped_s is not None
    assert trial.seconds < 30
    assert 6 <= len(trial.records) < 100


@pytest.mark.parametrize("load", [OpenLoop(rate_per_s=200.0, seconds=20.0), ClosedLoop(clients=4, seconds=20.0)])
def test_a_server_that_dies_ends_the_trial(load: Load) -> None:
    with known_server(exit_after=100) as server:
        trial = loaded(server, load)
    assert trial.gone
    assert trial.records.ok.sum() == 100
    assert trial.records.done_s.max() < 15


@pytest.mark.parametrize(("answer", "failure"), [({"raw": "SSH-2.0\r\n"}, "no answer in the response"),
                                                 ({"body": "hello"}, "no answer in the response")])  # fmt: skip
def test_nonsense_is_a_failure(answer: dict[str, str], failure: str) -> None:
    with known_server(**answer) as server:
        trial = loaded(server, ClosedLoop(clients=2, seconds=0.5, warm_up_s=0.0))
    assert trial_document(trial)["failures"].keys() == {failure}
    assert trial.images_per_s == 0


def test_the_hypervisors_share_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The generator runs in this process, where `/proc/stat` is one of ours: of two cores one loses a fifth."""
    began_s, ticks_per_s = time.perf_counter(), os.sysconf("SC_CLK_TCK")

    class Proc:
        def __truediv__(self, name: str) -> Path:
            stolen = int(0.2 * ticks_per_s * (time.perf_counter() - began_s))
            (tmp_path / "stat").write_text(f"cpu 0 0 0 0 0 0 0 {stolen}\n" + "".join(
                f"cpu{core} 0 0 0 0 0 0 0 {ticks} 0 0\n" for core, ticks in ((0, 0), (1, stolen), (2, 5 * stolen))
            ))  # fmt: skip
            return tmp_path / name

    monkeypatch.setattr(procfs, "_PROC", Proc())
    monkeypatch.setattr(generator, "affinity", lambda: (0, 1))
    monkeypatch.setattr(generator, "die_with_parent", lambda: None)
    monkeypatch.setattr("nas.loadtest.trial._generate", lambda folder, _: generator.main(folder))
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("gc.disable", lambda: None)
    with known_server() as server:
        trial = loaded(server, OpenLoop(rate_per_s=20.0, seconds=2.0, warm_up_s=0.0))
    (reason,) = [reason for reason in why_invalid(trial) if "hypervisor" in reason]
    assert reason in {f"the hypervisor took {share}% of the time" for share in (9, 10, 11)}


def test_a_generator_that_cannot_work_is_said() -> None:
    conversation = Conversation(
        host="no-such-host.invalid", port=1, requests=[REQUEST], expected=[b""], reader=LABEL
    )  # fmt: skip
    with pytest.raises(UserError, match="the load generator failed"):
        run_trial(conversation, ClosedLoop(clients=1, seconds=0.1))
