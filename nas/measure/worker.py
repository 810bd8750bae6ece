"""The process that times networks: `python -m nas.measure.worker`, one job as JSON on stdin, results on stdout.

It writes one JSON line per network when its timing is done, `{"index": ..., "timing": {...}}`, or `{"index": ...,
"failed": "..."}`. Networks are timed in small groups: all networks of a group are loaded, then short windows go round
over them and the reference network, so that a slow moment of the machine hits all of them alike. A crash costs the
group in hand; `nas.measure.protocol` sees from the heartbeat file whose fault it was, and gives the rest to a new
worker.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

import numpy as np

from nas.calls import calls_text
from nas.deployment import PIPELINE
from nas.errors import UserError
from nas.measure.devices import DeviceProbe, Watch, probe_of
from nas.measure.heartbeat import Heartbeat
from nas.measure.job import Job, JobModel, SessionTiming, window_seconds
from nas.measure.procfs import die_with_parent
from nas.measure.statistics import lower_percentile, percentiles, upper_percentile
from nas.runtimes import load_runtime
from nas.runtimes.base import Inputs, Session
from nas.runtimes.nodes import run_for
from nas.runtimes.streams import StreamSession, load_streams

if TYPE_CHECKING:
    from nas.measure.pipeline import PipelineSession

GROUP = 10
"""Networks loaded at once: enough to interleave, few enough that one crash costs little."""
ROUNDS = 6
SPACED_CALLS_PER_S, FEWEST_SPACED_CALLS = 60, 8
"""Calls with pauses between them for each second that a network would be timed without, and the fewest of them: a pause
takes much longer than a call."""
SPACED_WINDOW = 60
"""Most calls with pauses in a window: one of them has to end before the supervisor takes the worker for hung."""
MIN_WARM_UP_CALLS = 3
STABLE = 0.03
"""Warm-up ends when the median of a window differs by less from the window before."""


class UnusableOutputError(Exception):
    """The network ran, but what it returned is not a number."""


@dataclass(slots=True)
class _Loaded:
    """A network of the group in hand, and what was seen of it so far."""

    index: int
    session: Session
    inputs: Inputs
    watch: Watch
    interval_s: float = 0.0
    """From the start of one call to that of the next; 0: at once."""
    spaced_calls: int = 0
    """Calls to time where there is an interval."""
    pipeline: "PipelineSession | None" = None
    """The session, where calls cover more than the network."""
    load_ms: float = 0.0
    memory_bytes: int = 0
    times_s: list[float] = field(default_factory=list)

    def call(self) -> float:
        """Seconds of one call; with several streams, of a whole round of calls."""
        start = time.perf_counter()
        self.session.run(self.inputs)
        return time.perf_counter() - start

    def untimed_call(self) -> None:
        """A call that counts in no figure: the parts of a pipeline are those of the calls that are timed."""
        self.call()
        if self.pipeline is not None:
            self.pipeline.forget_last()

    @property
    def round(self) -> int:
        """The network's calls in one `call`."""
        return self.session.calls if isinstance(self.session, StreamSession) else 1

    @property
    def windows(self) -> int:
        """Windows in which it is timed."""
        return max(2, math.ceil(self.spaced_calls / SPACED_WINDOW)) if self.interval_s else ROUNDS


def main() -> None:
    die_with_parent()
    job = Job.from_json(json.load(sys.stdin))
    with _private_stdout() as results:
        work(job, results)


def work(job: Job, results: TextIO) -> None:
    """Do a job, writing result lines to `results`."""
    probe = probe_of(job.placement)
    probe.pin()
    heartbeat = Heartbeat(job.heartbeat)
    heartbeat.note(-1, "starting")
    probe.initialise({model.deployment.runtime for model in job.models}, job.reference)
    reference = probe.reference(job.reference)
    for start in range(0, len(job.models), GROUP):
        _time_group(job, job.models[start : start + GROUP], probe, reference, heartbeat, results)


def warm_up(call: Callable[[], float], seconds: float) -> None:
    """Call until two windows in a row agree within `STABLE`, but no longer than `seconds` after the first calls."""
    before = float(np.median([call() for _ in range(MIN_WARM_UP_CALLS)]))
    window_calls = max(2, min(50, int(seconds / 8 / before)))
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        now = float(np.median([call() for _ in range(window_calls)]))
        if abs(now - before) < STABLE * before:
            return
        before = now


def spaced_calls(job: Job) -> int:
    """Calls to time of each network that is called with pauses."""
    return max(FEWEST_SPACED_CALLS, job.least_calls, round(SPACED_CALLS_PER_S * job.seconds_per_model))


def time_window(loaded: _Loaded, seconds: float, least_calls: int, probe: DeviceProbe) -> None:
    """Time calls for `seconds`, at least one and `least_calls`. A first call, to fetch the network back into the
    caches, is not timed."""
    probe.synchronise()
    loaded.untimed_call()
    loaded.watch.begin()
    deadline = time.perf_counter() + seconds
    calls = 0
    while True:
        loaded.times_s.append(loaded.call() / loaded.round)
        calls += 1
        if calls >= least_calls and time.perf_counter() >= deadline:
            break
    loaded.watch.end()


def time_spaced(loaded: _Loaded, calls: int, probe: DeviceProbe) -> None:
    """Time `calls` that start one interval after the other; the process sleeps in between, as one does that waits for
    the next frame. A first call is not timed. A call that takes longer than the interval delays the next."""
    probe.synchronise()
    loaded.untimed_call()
    due = time.perf_counter()
    loaded.watch.begin()
    for _ in range(calls):
        due = max(due + loaded.interval_s, time.perf_counter())
        time.sleep(max(0.0, due - time.perf_counter()))
        loaded.times_s.append(loaded.call() / loaded.round)
    loaded.watch.end()


def calls_in_a_row_ms(loaded: _Loaded, seconds: float) -> float:
    """Median of the calls of about `seconds`, in milliseconds, without the first third of that time."""
    times_s: list[float] = []
    run_for(seconds / 3, time.perf_counter, loaded.call)
    run_for(seconds * 2 / 3, time.perf_counter, lambda: times_s.append(loaded.call() / loaded.round))
    return 1e3 * float(np.median(times_s))


def _time_group(
    job: Job,
    models: Sequence[JobModel],
    probe: DeviceProbe,
    reference: Session,
    heartbeat: Heartbeat,
    results: TextIO,
) -> None:
    group = []
    for model in models:
        heartbeat.note(model.index, "loading")
        try:
            group.append(_load(job, model, probe, heartbeat))
        except (UserError, UnusableOutputError) as error:
            _write(results, {"index": model.index, "failed": str(error)})
    heartbeat.note(-1, "running")
    beside = _Loaded(-1, reference, _drawn(reference, job.seed), probe.watch())
    warm_up(beside.call, job.seconds_per_model / 2)
    for number in range(max(loaded.windows for loaded in (beside, *group))):
        for loaded in (beside, *group):
            if number >= loaded.windows:
                continue
            heartbeat.note(loaded.index, "running")
            if loaded.interval_s:
                time_spaced(loaded, math.ceil(loaded.spaced_calls / loaded.windows), probe)
            else:
                least = 0 if loaded is beside else job.least_calls
                seconds = window_seconds(job.seconds_per_model, least)
                time_window(loaded, seconds / ROUNDS, math.ceil(max(1, least) / ROUNDS), probe)
    reference_p50_s = percentiles(beside.times_s)[0]
    for loaded in group:
        p50_s = percentiles(loaded.times_s)[0]
        if loaded.interval_s and p50_s > loaded.interval_s:
            pattern = calls_text(1e3 * loaded.interval_s)
            _write(
                results,
                {
                    "index": loaded.index,
                    "failed": f"a call takes {1e3 * p50_s:.3g} ms, so it cannot be called {pattern}, every "
                    f"{1e3 * loaded.interval_s:g} ms",
                },
            )
            continue
        timing = _summary(loaded, reference_p50_s)
        if loaded.round == 1 and loaded.pipeline is None:
            heartbeat.note(loaded.index, "running")
            timing = replace(timing, device_ms=probe.device_ms(loaded.session, loaded.inputs, job.seconds_per_model))
        if job.node_seconds > 0 and not loaded.interval_s and loaded.pipeline is None:
            heartbeat.note(loaded.index, "running")
            model = next(m for m in models if m.index == loaded.index)
            in_a_row_ms = calls_in_a_row_ms(loaded, job.node_seconds / 2)
            times = probe.operator_times(model.path, model.deployment, loaded.inputs, job.node_seconds)
            timing = replace(timing, nodes_p50_ms=in_a_row_ms, nodes=times)
        _write(results, {"index": loaded.index, "timing": timing.to_json()})


def _load(job: Job, model: JobModel, probe: DeviceProbe, heartbeat: Heartbeat) -> _Loaded:
    """Load, check the output, warm up; memory is what all that added to the peak."""
    before = probe.settle_memory()
    start = time.perf_counter()
    session = _session(model)
    pipeline = _around(session, model) if model.deployment.covers == PIPELINE else None
    load_ms = 1e3 * (time.perf_counter() - start)
    inputs = _drawn(session, job.seed)
    heartbeat.note(model.index, "running")
    session = pipeline or session
    output = session.run(inputs)
    if not np.isfinite(output).all():
        raise UnusableOutputError("its output is not finite")
    interval_s = model.deployment.interval_ms / 1e3
    loaded = _Loaded(
        model.index, session, inputs, probe.watch(pauses=interval_s > 0), interval_s, spaced_calls(job),
        load_ms=load_ms,
        pipeline=pipeline,
    )  # fmt: skip
    warm_up(loaded.call, job.seconds_per_model)
    if pipeline is not None:
        pipeline.forget()
    loaded.memory_bytes = max(0, probe.peak_memory() - before)
    return loaded


def _session(model: JobModel) -> Session:
    runtime = load_runtime(model.deployment.runtime)
    if model.streams > 1:
        return load_streams(runtime, model.path, model.deployment, model.streams)
    return runtime.load(model.path, model.deployment)


def _around(session: Session, model: JobModel) -> "PipelineSession":
    from nas.measure.pipeline import PipelineSession  # with the tasks, which nobody else needs here

    return PipelineSession(session, model.path.parent)


def _drawn(session: Session, seed: int) -> Inputs:
    return session.input.draw(np.random.default_rng(seed), session.batch)


def _summary(loaded: _Loaded, reference_p50_s: float) -> SessionTiming:
    p50, p90, p99 = percentiles(loaded.times_s)
    calls, seen = len(loaded.times_s) * loaded.round, loaded.watch.observation()
    before_ms, network_ms, after_ms = loaded.pipeline.medians_ms() if loaded.pipeline is not None else (None,) * 3
    bounds = (bound(loaded.times_s, p) for bound in (lower_percentile, upper_percentile) for p in (90, 99))
    p90_lower_ms, p99_lower_ms, p90_upper_ms, p99_upper_ms = (None if b is None else 1e3 * b for b in bounds)
    return SessionTiming(
        p50_ms=1e3 * p50,
        p90_ms=1e3 * p90,
        p99_ms=1e3 * p99,
        p90_upper_ms=p90_upper_ms,
        p99_upper_ms=p99_upper_ms,
        p90_lower_ms=p90_lower_ms,
        p99_lower_ms=p99_lower_ms,
        calls=calls,
        reference_p50_ms=1e3 * reference_p50_s,
        load_ms=loaded.load_ms,
        memory_bytes=loaded.memory_bytes,
        cpu_share=seen.cpu_share,
        disturbance=seen.disturbance,
        energy_mj=None if seen.energy_j is None else 1e3 * seen.energy_j / calls,
        preprocess_ms=before_ms,
        network_ms=network_ms,
        postprocess_ms=after_ms,
    )


def _write(results: TextIO, line: dict[str, object]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def _private_stdout() -> TextIO:
    """The process's stdout for results alone: whatever a library prints goes to stderr, also from C."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return results


if __name__ == "__main__":
    main()
