"""Measuring with real worker processes, and with workers that die."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from nas.deployment import Deployment
from nas.limits import session_latencies_ms
from nas.measure import protocol
from nas.measure.devices.cpu import await_idle_threads
from nas.measure.heartbeat import Step, decode_step, encode_step
from nas.measure.job import Job, SessionTiming
from nas.measure.measurement import quieter, session_latency_ms, slowed_down, summarise
from nas.measure.protocol import Measurement, MeasureRequest, measure
from nas.measure.reference import MatmulReference, reference_model
from nas.measure.supervision import WorkerReport
from nas.measure.worker import warm_up
from nas.runtimes.ort import OnnxRuntime
from tests.nas.tiny import write_tiny_network

ORT = Deployment("onnxruntime", "fp32", threads=1)
TIMING = SessionTiming(
    p50_ms=2.0,
    p90_ms=2.2,
    p99_ms=3.0,
    calls=100,
    reference_p50_ms=1.0,
    load_ms=5.0,
    memory_bytes=1000,
    cpu_share=1.0,
    disturbance=None,
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_network(tmp_path_factory.mktemp("networks") / "tiny.onnx")


@pytest.fixture(scope="module")
def slow_network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tens of milliseconds and more than 200 MiB per call."""
    return write_tiny_network(tmp_path_factory.mktemp("networks") / "slow.onnx", size=1024, width=64)


@contextmanager
def worker_signalled(phase: str, last: signal.Signals) -> Iterator[list[Step]]:
    """Freeze the first worker that is in `phase` with a network, note its step, and send it `last`."""
    seen: list[Step] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set() and not seen:
            for child in psutil.Process().children():
                try:
                    step, process = _step(child), child
                except psutil.Error:
                    continue
                if step.index >= 0 and step.phase == phase:
                    process.send_signal(signal.SIGSTOP)
                    seen.append(_step(process))
                    process.send_signal(last)
                    return
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _step(process: psutil.Process) -> Step:
    for file in process.open_files():
        if file.path.endswith("/heartbeat"):
            return decode_step(Path(file.path).read_bytes())
    return Step(0, -1, "starting")


@pytest.mark.usefixtures("impatient")
def test_calls_with_pauses_are_timed_apart_and_rates_that_cannot_be_kept_are_said(
    network: Path, slow_network: Path
) -> None:
    began = time.monotonic()
    spaced, usual, hopeless = measure(
        [
            MeasureRequest(network, ORT.called(20.0)),
            MeasureRequest(network, ORT),
            MeasureRequest(slow_network, ORT.called(1.0)),
        ],
        sessions=1,
        seconds_per_model=0.05,
        least_calls=12,
    )
    assert time.monotonic() - began > 12 * 0.020
    assert spaced.sessions[0].calls == 12
    assert usual.sessions[0].calls >= 12
    assert spaced.request.deployment.calls == "50/s"
    assert 0 < spaced.p50_ms < 20
    assert hopeless.failed is not None
    assert "cannot be called 1000/s, every 1 ms" in hopeless.failed


@pytest.mark.usefixtures("impatient")
def test_measures_every_network_in_fresh_sessions(network: Path, slow_network: Path) -> None:
    done = []
    results = measure(
        [MeasureRequest(network, ORT), MeasureRequest(slow_network, ORT)],
        sessions=2,
        seconds_per_model=0.05,
        progress=lambda count, total: done.append((count, total)),
    )
    assert [len(result.sessions) for result in results] == [2, 2]
    assert all(result.failed is None for result in results)
    tiny, slow = results
    assert 0 < tiny.p50_ms <= tiny.p90_ms <= tiny.p99_ms
    assert slow.p50_ms > 20 * tiny.p50_ms
    assert slow.memory_bytes > 200 * 2**20 > tiny.memory_bytes
    assert tiny.worst_session_p50_ms == max(session.p50_ms for session in tiny.sessions)
    assert done == [(2, 4), (4, 4)]


@pytest.mark.usefixtures("impatient")
def test_a_timing_is_true(slow_network: Path) -> None:
    """Compared with a plain loop in this process, generously, because the machine may be busy."""
    session = OnnxRuntime().load(slow_network, ORT)
    images = np.zeros(session.input.batched(session.batch), np.float32)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        session.run(images)
        times.append(1e3 * (time.perf_counter() - start))
    (result,) = measure([MeasureRequest(slow_network, ORT)], sessions=1, seconds_per_model=0.2)
    assert 0.3 < result.p50_ms / float(np.median(times)) < 3


@pytest.mark.usefixtures("impatient")
def test_failures_are_recorded_and_the_rest_is_measured(network: Path, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"no network")
    not_a_number = write_tiny_network(tmp_path / "nan.onnx", scale=math.nan)
    requests = [
        MeasureRequest(garbage, ORT),
        MeasureRequest(not_a_number, ORT),
        MeasureRequest(network, Deployment("no-such-runtime", "fp32", 1)),
        MeasureRequest(network, ORT),
        MeasureRequest(tmp_path / "absent.onnx", ORT),
    ]
    done = []
    results = measure(
        requests, sessions=2, seconds_per_model=0.05, progress=lambda count, total: done.append((count, total))
    )
    assert "cannot load" in (results[0].failed or "")
    assert results[1].failed == "its output is not finite"
    assert "no-such-runtime" in (results[2].failed or "")
    assert results[3].failed is None
    assert len(results[3].sessions) == 2
    assert "absent.onnx" in (results[4].failed or "")
    assert math.isnan(results[0].p50_ms)
    assert not results[0].keeps(1e9)
    assert done[-1] == (10, 10)


@pytest.mark.usefixtures("impatient")
def test_a_killed_worker_costs_the_network_in_hand_only(network: Path, slow_network: Path) -> None:
    requests = [MeasureRequest(network, ORT), MeasureRequest(slow_network, ORT), MeasureRequest(network, ORT)]
    with worker_signalled("running", signal.SIGKILL) as seen:
        results = measure(requests, sessions=1, seconds_per_model=0.1)
    (step,) = seen
    assert "SIGKILL" in (results[step.index].failed or "")
    others = [result for i, result in enumerate(results) if i != step.index]
    assert [(result.failed, len(result.sessions)) for result in others] == [(None, 1), (None, 1)]


@pytest.mark.usefixtures("impatient")
def test_a_hanging_worker_is_killed(network: Path, slow_network: Path) -> None:
    requests = [MeasureRequest(slow_network, ORT), MeasureRequest(network, ORT)]
    start = time.monotonic()
    with worker_signalled("running", signal.SIGSTOP) as seen:
        results = measure(requests, sessions=1, seconds_per_model=0.1, timeout_s=3)
    (step,) = seen
    assert results[step.index].failed == "no answer within 3 s while running"
    assert results[1 - step.index].failed is None
    assert time.monotonic() - start < 60
    assert not any("nas.measure.worker" in child.cmdline() for child in psutil.Process().children())


@pytest.mark.usefixtures("impatient")
def test_a_network_that_takes_too_much_memory_is_killed(network: Path, slow_network: Path) -> None:
    requests = [MeasureRequest(slow_network, ORT), MeasureRequest(network, ORT)]
    heavy, light = measure(requests, sessions=1, seconds_per_model=0.3, memory_limit_bytes=300 * 2**20)
    assert "300 MiB of memory" in (heavy.failed or "")
    assert light.failed is None


def test_a_worker_that_cannot_start_fails_all(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (result,) = measure([MeasureRequest(network, ORT)], sessions=2)
    assert "crashed while starting" in (result.failed or "")
    assert result.sessions == ()


@pytest.mark.usefixtures("impatient")
def test_a_busy_core_is_noticed(network: Path) -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    burn = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint('burning', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as burner:
        assert burner.stdout is not None
        burner.stdout.readline()
        (result,) = measure([MeasureRequest(network, ORT)], sessions=1, seconds_per_model=0.2)
        burner.kill()
    assert result.verdict == "disturbed"
    assert result.sessions[0].disturbance is not None
    assert result.failed is None


class ScriptedWorkers:
    """Takes the place of `run_worker`: answers with the next report."""

    def __init__(self, *reports: WorkerReport) -> None:
        self.reports = list(reports)
        self.jobs: list[list[int]] = []

    def __call__(self, job: Job, limits: object) -> WorkerReport:
        self.jobs.append([model.index for model in job.models])
        return self.reports.pop(0)


def _report(**changes: object) -> WorkerReport:
    return replace(WorkerReport(timings={}, failed={}, death=None, culprit=None), **changes)  # type: ignore[arg-type]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[MeasureRequest]:
    monkeypatch.setattr(protocol, "PAUSE_S", 0)
    return [MeasureRequest(Path(f"{i}.onnx"), ORT) for i in range(2)]


def _scripted(monkeypatch: pytest.MonkeyPatch, *reports: WorkerReport) -> ScriptedWorkers:
    workers = ScriptedWorkers(*reports)
    monkeypatch.setattr(protocol, "run_worker", workers)
    return workers


def test_a_death_that_is_nobodys_fault_gets_one_more_chance(
    monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]
) -> None:
    workers = _scripted(
        monkeypatch,
        _report(timings={0: TIMING}, death="killed by SIGKILL"),
        _report(timings={1: TIMING}),
    )
    results = measure(requests, sessions=1)
    assert [result.failed for result in results] == [None, None]
    assert workers.jobs == [[0, 1], [1]]


def test_only_disturbed_sessions_are_repeated_and_twice_at_most(
    monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]
) -> None:
    noisy = replace(TIMING, p50_ms=5.0, disturbance="noise")
    workers = _scripted(
        monkeypatch,
        _report(timings={0: noisy, 1: noisy}),
        _report(timings={0: TIMING, 1: replace(noisy, p50_ms=4.0)}),
        _report(timings={1: replace(noisy, p50_ms=6.0)}),
    )
    first, second = measure(requests, sessions=1)
    assert workers.jobs == [[0, 1], [0, 1], [1]]
    assert (first.verdict, first.p50_ms) == ("quiet", 2.0)
    assert (second.verdict, second.p50_ms) == ("disturbed", 4.0)


def test_a_slow_reference_counts_as_disturbed(monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]) -> None:
    slow = replace(TIMING, p50_ms=3.0, reference_p50_ms=1.5)
    workers = _scripted(
        monkeypatch,
        _report(timings={0: TIMING}),
        _report(timings={0: slow}),
        _report(timings={0: TIMING}),
    )
    (result,) = measure(requests[:1], sessions=2)
    assert len(workers.jobs) == 3
    assert (result.verdict, result.worst_session_p50_ms) == ("quiet", 2.0)
    assert "50% slower" in (slowed_down(slow, 1.0, 0.15).disturbance or "")
    assert slowed_down(slow, 1.45, 0.15).disturbance is None


def test_a_slow_first_session_counts_as_disturbed_when_later_ones_show_it(
    monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]
) -> None:
    slow = replace(TIMING, p50_ms=3.0, reference_p50_ms=1.5)
    quick = _report(timings={0: TIMING})
    workers = _scripted(monkeypatch, _report(timings={0: slow}), quick, quick, quick)
    (result,) = measure(requests[:1], sessions=3)
    assert len(workers.jobs) == 4
    assert (result.verdict, result.worst_session_p50_ms) == ("quiet", 2.0)

    workers = _scripted(monkeypatch, _report(timings={0: slow}), quick, quick)
    (result,) = measure(requests[:1], sessions=3, repeat_s=0)
    assert (result.verdict, result.worst_session_p50_ms) == ("disturbed", 3.0), "there was no time to repeat it"
    assert "50% slower" in (result.sessions[0].disturbance or "")


def test_a_session_that_later_ones_show_to_be_slow_is_repeated_twice_in_all(
    monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]
) -> None:
    noisy = replace(TIMING, p50_ms=4.0, reference_p50_ms=1.5, disturbance="noise")
    slow = replace(TIMING, p50_ms=3.0, reference_p50_ms=1.5)
    workers = _scripted(
        monkeypatch,
        _report(timings={0: noisy, 1: slow}),
        _report(timings={0: slow}),
        _report(timings={0: TIMING}, failed={1: "broken"}),
        _report(timings={0: replace(slow, p50_ms=2.9)}),
    )
    first, second = measure(requests, sessions=2)
    assert workers.jobs == [[0, 1], [0], [0, 1], [0]], "one repetition was left, and what has failed is not repeated"
    assert (first.verdict, first.p50_ms, first.worst_session_p50_ms) == ("disturbed", 2.45, 4.0)
    assert (second.failed, second.verdict) == ("broken", "disturbed")


def test_an_attempt_that_only_the_reference_shows_to_be_slow_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]
) -> None:
    noisy = replace(TIMING, p50_ms=1.3, disturbance="noise")
    _scripted(
        monkeypatch,
        _report(timings={0: noisy}),
        _report(timings={0: replace(TIMING, p50_ms=1.0, reference_p50_ms=1.2 * TIMING.reference_p50_ms)}),
        _report(timings={0: replace(noisy, p50_ms=1.05)}),
    )
    (result,) = measure(requests[:1], sessions=1)
    assert (result.verdict, result.p50_ms, result.worst_session_p50_ms) == ("disturbed", 1.0, 1.3)
    assert not result.keeps(1.1), "the first attempt broke it"


def test_a_failed_network_is_left_out_of_later_sessions(
    monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]
) -> None:
    workers = _scripted(monkeypatch, _report(timings={1: TIMING}, failed={0: "broken"}), _report(timings={1: TIMING}))
    first, second = measure(requests, sessions=2)
    assert workers.jobs == [[0, 1], [1]]
    assert (first.failed, len(second.sessions)) == ("broken", 2)


def test_thread_counts_are_measured_apart(monkeypatch: pytest.MonkeyPatch, requests: list[MeasureRequest]) -> None:
    workers = _scripted(monkeypatch, _report(timings={0: TIMING}), _report(timings={1: TIMING}))
    two_threads = MeasureRequest(requests[1].path, replace(ORT, threads=2))
    measure([requests[0], two_threads], sessions=1)
    assert workers.jobs == [[0], [1]]


def test_summary_and_json_round_trip() -> None:
    request = MeasureRequest(Path("a.onnx"), ORT)
    drifted = replace(TIMING, p50_ms=2.4, reference_p50_ms=1.2)
    result = summarise(request, [TIMING, drifted, TIMING], None, usual_reference_ms=1.0)
    assert (result.p50_ms, result.worst_session_p50_ms) == (2.0, 2.4)
    assert result.between_session_spread_pct == pytest.approx(20)
    assert result.drift_corrected_p50_ms == pytest.approx(2.0)
    assert result.keeps(2.4)
    assert not result.keeps(2.39)
    assert Measurement.from_json(json.loads(json.dumps(result.to_json()))) == result
    failed = summarise(request, [], "broken", usual_reference_ms=math.nan)
    document = json.loads(json.dumps(failed.to_json(), allow_nan=False))
    again = Measurement.from_json(document)
    assert (document["p50_ms"], again.failed, again.sessions) == (None, "broken", ())
    assert math.isnan(again.p50_ms)


def test_quieter_attempt() -> None:
    noisy_but_fast = replace(TIMING, p50_ms=1.0, disturbance="noise")
    assert quieter(noisy_but_fast, TIMING) is TIMING
    assert quieter(TIMING, noisy_but_fast) is TIMING
    slower = replace(TIMING, p50_ms=2.5)
    assert quieter(slower, TIMING) is TIMING


def test_the_luckiest_of_disturbed_attempts_keeps_no_limit() -> None:
    attempts = [
        replace(TIMING, p50_ms=p50, p90_upper_ms=p90, p99_upper_ms=None, disturbance="noise")
        for p50, p90 in ((1.2, 3.0), (0.9, 1.9), (1.1, 4.0))
    ]
    kept = quieter(quieter(attempts[0], attempts[1]), attempts[2])
    assert (kept.p50_ms, kept.attempts_ms) == (0.9, ((1.2, 3.0, None), (1.1, 4.0, None)))
    assert [session_latency_ms(kept, percentile) for percentile in (50, 90, 99)] == [1.2, 4.0, kept.p99_ms]
    assert SessionTiming.from_json(json.loads(json.dumps(kept.to_json()))) == kept
    result = summarise(MeasureRequest(Path("a.onnx"), ORT), [kept], None, usual_reference_ms=1.0)
    assert (result.p50_ms, result.worst_session_p50_ms, result.verdict) == (0.9, 1.2, "disturbed")
    assert not result.keeps(1.1)
    assert session_latencies_ms(result, 50) == (1.2,)
    quiet = replace(TIMING, p50_ms=1.0)
    assert quieter(kept, quiet) is quiet, "an undisturbed attempt says all"


def test_no_sessions_is_an_error(requests: list[MeasureRequest]) -> None:
    with pytest.raises(ValueError, match="at least one session"):
        measure(requests, sessions=0)
    assert measure([], sessions=1) == []


def test_heartbeat_records_have_one_size() -> None:
    steps = [Step(1, -1, "starting"), Step(10**9, 10**6, "running")]
    assert len({len(encode_step(step)) for step in steps}) == 1
    assert [decode_step(encode_step(step)) for step in steps] == steps
    assert decode_step(b"").phase == "starting"


def test_warm_up_stops_when_stable_and_is_bounded() -> None:
    calls = []

    def falling() -> float:
        calls.append(1)
        time.sleep(1e-4)
        return max(1e-4, 1e-3 * 0.5 ** len(calls))

    warm_up(falling, seconds=5)
    settled = len(calls)
    assert 3 < settled < 200

    def growing() -> float:
        time.sleep(1e-3)
        calls.append(1)
        return 1e-3 * len(calls)

    start = time.monotonic()
    warm_up(growing, seconds=0.05)
    assert time.monotonic() - start < 20, "bounded, also where it never settles"


@pytest.mark.alone
def test_spinning_threads_are_waited_for() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert not await_idle_threads(seconds=0.1)
    finally:
        stop.set()
        thread.join()
    assert await_idle_threads(seconds=5)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does this")
def test_a_worker_dies_with_its_parent(slow_network: Path) -> None:
    script = (
        "from pathlib import Path\nfrom nas.deployment import Deployment\n"
        "from nas.measure.protocol import MeasureRequest, measure\n"
        f"measure([MeasureRequest(Path({str(slow_network)!r}), Deployment('onnxruntime', 'fp32', 1))], "
        "seconds_per_model=20)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        deadline = time.monotonic() + 30
        while not (workers := psutil.Process(parent.pid).children()) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(1)  # until it has asked for that
        parent.kill()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert workers
    assert not alive


def test_reference_network_is_cached_and_runs(tmp_path: Path) -> None:
    path = reference_model(tmp_path)
    assert path is not None
    assert reference_model(tmp_path) == path
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    session = OnnxRuntime().load(path, ORT)
    output = session.run(session.input.draw(np.random.default_rng(0), session.batch))
    assert 0.1 < float(np.abs(output).mean()) < 10  # unit scale: no denormals
    stand_in = MatmulReference()
    assert np.isfinite(stand_in.run(np.ones(stand_in.input.batched(stand_in.batch), np.float32))).all()
