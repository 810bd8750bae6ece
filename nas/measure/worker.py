"""The process that times networks: `python -m nas.measure.worker`, one job as JSON on stdin, results on stdout.

It writes one JSON line per network when its timing is done, `{"index": ..., "timing": {...}}`, or `{"index": ...,
"failed": "..."}`. Networks are timed in small groups: all networks of a group are loaded, then short windows go round
over them and the reference network, so that a slow moment of the machine hits all of them alike. A crash costs the
group in hand; `nas.measure.protocol` sees from the heartbeat file whose fault it was, and gives the rest to a new
worker.
"""

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

import numpy as np

from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.heartbeat import Heartbeat
from nas.measure.job import Job, JobModel, SessionTiming
from nas.measure.procfs import clear_peak_memory, die_with_parent, memory_status, snapshot
from nas.measure.reference import MatmulReference
from nas.measure.statistics import Activity, disturbance, percentiles
from nas.runtimes import RUNTIMES, load_runtime
from nas.runtimes.base import Images, Session
from nas.runtimes.nodes import NodeTime, NodeTimer
from nas.runtimes.streams import StreamSession, load_streams

GROUP = 10
"""Networks loaded at once: enough to interleave, few enough that one crash costs little."""
ROUNDS = 6
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
    images: Images
    load_ms: float = 0.0
    memory_bytes: int = 0
    times_s: list[float] = field(default_factory=list)
    activity: Activity = field(default_factory=lambda: Activity(wall_s=0.0, cpu_s=0.0, energy_j=0.0))

    def call(self) -> float:
        """Seconds of one call; with several streams, of a whole round of calls."""
        start = time.perf_counter()
        self.session.run(self.images)
        return time.perf_counter() - start

    @property
    def round(self) -> int:
        """The network's calls in one `call`."""
        return self.session.calls if isinstance(self.session, StreamSession) else 1


def main() -> None:
    die_with_parent()
    job = Job.from_json(json.load(sys.stdin))
    with _private_stdout() as results:
        work(job, results)


def work(job: Job, results: TextIO) -> None:
    """Do a job, writing result lines to `results`."""
    cores = pin(job.threads)
    heartbeat = Heartbeat(job.heartbeat)
    heartbeat.note(-1, "starting")
    reference = _load_reference(job)
    _initialise_runtimes(job)
    for start in range(0, len(job.models), GROUP):
        _time_group(job, job.models[start : start + GROUP], reference, cores, heartbeat, results)


def pin(threads: int) -> tuple[int, ...]:
    """Keep this process on `threads` of its cores, the last ones (the first serves most interrupts); returns them."""
    if not hasattr(os, "sched_setaffinity"):
        return ()
    cores = tuple(sorted(os.sched_getaffinity(0))[-threads:])
    os.sched_setaffinity(0, cores)
    return cores


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


def await_idle_threads(seconds: float = 0.2) -> bool:
    """Wait until this process stands still, for `seconds` at most; returns whether it does.

    The worker threads of ONNX Runtime spin on for some 20 ms after a call, and would compete with the network that is
    timed next.
    """
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        before = time.process_time()
        time.sleep(0.004)
        if time.process_time() - before < 0.0005:
            return True
    return False


def time_window(loaded: _Loaded, seconds: float, cores: Sequence[int]) -> None:
    """Time calls for `seconds`, at least one. A first call, to fetch the network back into the caches, is not timed."""
    if len(cores) != 1:
        await_idle_threads()
    loaded.call()
    before = snapshot(cores)
    deadline = time.perf_counter() + seconds
    while True:
        loaded.times_s.append(loaded.call() / loaded.round)
        if time.perf_counter() >= deadline:
            break
    loaded.activity = loaded.activity + (snapshot(cores) - before)


def _time_group(
    job: Job,
    models: Sequence[JobModel],
    reference: Session,
    cores: Sequence[int],
    heartbeat: Heartbeat,
    results: TextIO,
) -> None:
    group = []
    for model in models:
        heartbeat.note(model.index, "loading")
        try:
            group.append(_load(job, model, heartbeat))
        except (UserError, UnusableOutputError) as error:
            _write(results, {"index": model.index, "failed": str(error)})
    heartbeat.note(-1, "running")
    beside = _Loaded(-1, reference, _images(reference, job.seed))
    warm_up(beside.call, job.seconds_per_model / 2)
    for _ in range(ROUNDS):
        for loaded in (beside, *group):
            heartbeat.note(loaded.index, "running")
            time_window(loaded, job.seconds_per_model / ROUNDS, cores)
    reference_p50_s = percentiles(beside.times_s)[0]
    for loaded in group:
        timing = _summary(loaded, reference_p50_s, job.threads)
        if job.node_seconds > 0:
            heartbeat.note(loaded.index, "running")
            model = next(m for m in models if m.index == loaded.index)
            timing = replace(timing, nodes=_node_times(model, loaded.images, job.node_seconds, cores))
        _write(results, {"index": loaded.index, "timing": timing.to_json()})


def _node_times(model: JobModel, images: Images, seconds: float, cores: Sequence[int]) -> tuple[NodeTime, ...]:
    runtime = load_runtime(model.deployment.runtime)
    if not isinstance(runtime, NodeTimer):
        return ()
    if len(cores) != 1:
        await_idle_threads()
    return tuple(runtime.node_times(model.path, model.deployment, images, seconds))


def _load(job: Job, model: JobModel, heartbeat: Heartbeat) -> _Loaded:
    """Load, check the output, warm up; memory is what all that added to the peak."""
    resident_before = _settle_memory()
    start = time.perf_counter()
    session = _session(model)
    load_ms = 1e3 * (time.perf_counter() - start)
    images = _images(session, job.seed)
    heartbeat.note(model.index, "running")
    output = session.run(images)
    if not np.isfinite(output).all():
        raise UnusableOutputError("its output is not finite")
    loaded = _Loaded(model.index, session, images, load_ms)
    warm_up(loaded.call, job.seconds_per_model)
    loaded.memory_bytes = max(0, memory_status().peak_bytes - resident_before)
    return loaded


def _session(model: JobModel) -> Session:
    runtime = load_runtime(model.deployment.runtime)
    if model.streams > 1:
        return load_streams(runtime, model.path, model.deployment, model.streams)
    return runtime.load(model.path, model.deployment)


def _settle_memory() -> int:
    """Give freed memory back and restart the peak, so that one network's memory is not counted as another's."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # only the GNU C library has it
        ctypes.CDLL(None).malloc_trim(0)
    clear_peak_memory()
    return memory_status().resident_bytes


def _images(session: Session, seed: int) -> Images:
    return np.random.default_rng(seed).standard_normal(session.input_shape, dtype=np.float32)


def _load_reference(job: Job) -> Session:
    if job.reference is None:
        return MatmulReference()
    return load_runtime("onnxruntime").load(job.reference, Deployment("onnxruntime", "fp32", job.threads))


def _initialise_runtimes(job: Job) -> None:
    """Import and start each library before the first network, which would otherwise be charged with its memory."""
    for name in sorted({model.deployment.runtime for model in job.models} & RUNTIMES.keys()):
        runtime = load_runtime(name)
        if runtime.missing() is not None:
            continue  # loading the first network says so
        if name == "torch":
            import torch

            torch.zeros(1, 1, 8, 8) @ torch.zeros(8, 8)
        elif job.reference is not None and name != "onnxruntime":
            session = runtime.load(job.reference, Deployment(name, "fp32", job.threads))
            session.run(_images(session, job.seed))


def _summary(loaded: _Loaded, reference_p50_s: float, threads: int) -> SessionTiming:
    p50, p90, p99 = percentiles(loaded.times_s)
    calls, energy_j = len(loaded.times_s) * loaded.round, loaded.activity.energy_j
    return SessionTiming(
        p50_ms=1e3 * p50,
        p90_ms=1e3 * p90,
        p99_ms=1e3 * p99,
        calls=calls,
        reference_p50_ms=1e3 * reference_p50_s,
        load_ms=loaded.load_ms,
        memory_bytes=loaded.memory_bytes,
        cpu_share=loaded.activity.cpu_s / loaded.activity.wall_s,
        disturbance=disturbance(loaded.activity, threads),
        energy_mj=None if energy_j is None else 1e3 * energy_j / calls,
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
