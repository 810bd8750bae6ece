"""Measure networks in several fresh sessions, each in a worker process that may crash, hang or run out of memory."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from pathlib import Path
from statistics import median

from nas.deployment import Placement
from nas.machine import available_memory_bytes
from nas.measure.job import Job, JobModel, SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, quieter, slowed_down, summarise
from nas.measure.process import Limits
from nas.measure.reference import reference_model
from nas.measure.supervision import WorkerReport, run_worker

__all__ = ["MeasureRequest", "Measurement", "measure"]

SECONDS_PER_MODEL = 0.3
"""Of timing each network in a session, where nobody asks for another time."""
REPEATS = 2
"""Times a disturbed session is measured again before it is called disturbed."""
PAUSE_S = 0.5
"""Seconds of rest before the first repetition, so that a short disturbance can pass; later ones get multiples."""
MEMORY_SHARE = 0.8
"""Share of the memory free at the start that a worker may take by default."""
REFERENCE_TOLERANCE = 0.15

Progress = Callable[[int, int], None]


def measure(
    requests: Sequence[MeasureRequest],
    *,
    sessions: int = 3,
    seconds_per_model: float = SECONDS_PER_MODEL,
    node_seconds: float = 0.0,
    least_calls: int = 0,
    repeat_s: float = math.inf,
    timeout_s: float = 60.0,
    memory_limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> list[Measurement]:
    """Latency of networks on this host, in the order of `requests`.

    Each session is one fresh worker process over all networks of a placement (device and threads), pinned to as many
    cores as threads. A network that crashes its worker, returns something that is not a number, hangs or takes too much
    memory is a recorded failure; the others are measured all the same. A session that was disturbed is repeated.

    Args:
        requests: files as `Runtime.prepare` returned them.
        sessions: fresh sessions (>= 1); the spread between them is the noise floor.
        seconds_per_model: timing per network and session, besides loading and warming up.
        least_calls: calls of each network and session to time at least: few calls tell nothing of the slow ones.
        node_seconds: time per network and session for its operators one by one (`SessionTiming.nodes`); 0: not at all.
        repeat_s: time for measuring disturbed sessions again; when it is up they stay as they are, and their verdict.
        timeout_s: longest time for one step of one network (loading it with warming up, or one window of calls).
        memory_limit_bytes: private memory of a worker, beyond which it is killed; by default 80 % of what is free.
        progress: called with (done, total) after each session of a network.
    """
    if sessions < 1:
        raise ValueError(f"at least one session, got {sessions}")
    free = available_memory_bytes()
    limit = memory_limit_bytes if memory_limit_bytes is not None or free is None else int(MEMORY_SHARE * free)
    batch = _Batch(
        requests,
        seconds_per_model,
        node_seconds,
        least_calls,
        repeat_s,
        Limits(timeout_s, limit),
        _Account(len(requests) * sessions, progress),
    )
    order = list(product(range(sessions), sorted({request.deployment.placement for request in requests})))
    for session, placement in order:
        batch.run_session(session, placement)
    for session, placement in order:
        batch.repeat_disturbed(session, placement)
    return batch.measurements()


class _Account:
    """Counts finished (network, session) pairs for the caller."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None and count:
            self._progress(self._done, self._total)


class _Batch:
    """The networks of one `measure` call and what is known about them."""

    def __init__(
        self,
        requests: Sequence[MeasureRequest],
        seconds_per_model: float,
        node_seconds: float,
        least_calls: int,
        repeat_s: float,
        limits: Limits,
        account: _Account,
    ) -> None:
        self._requests = requests
        self._seconds_per_model = seconds_per_model
        self._node_seconds = node_seconds
        self._least_calls = least_calls
        self._repeat_s = repeat_s
        self._limits = limits
        self._account = account
        self._reference = reference_model()
        self._attempts: list[list[list[SessionTiming]]] = [[] for _ in requests]
        """Of each network and session: its timing, and those of its repetitions."""
        self._failed: dict[int, str] = {}

    def run_session(self, session: int, placement: Placement) -> None:
        """One fresh session of every network that runs there."""
        alive = self._running_at(placement)
        remaining = [i for i in alive if i not in self._failed]
        self._account.add(len(alive) - len(remaining))
        for i, timing in self._time(remaining, placement, session, account=True).items():
            self._attempts[i].append([timing])
        self.repeat_disturbed(session, placement)

    def repeat_disturbed(self, session: int, placement: Placement) -> None:
        """Measure the networks again of which this session is disturbed by what is known now.

        In the session itself, and again after the last one: only then is a machine that was slow at first seen to
        have been.
        """
        for attempt in range(1, REPEATS + 1):
            best = self._best_reference_ms(placement)
            noisy = [
                i
                for i in self._running_at(placement)
                if i not in self._failed
                and session < len(self._attempts[i])
                and len(self._attempts[i][session]) <= REPEATS
                and _judged(self._attempts[i][session], best).disturbance is not None
            ]
            if not noisy or self._repeat_s <= 0:
                break
            began = time.monotonic()
            time.sleep(PAUSE_S * attempt)
            for i, timing in self._time(noisy, placement, session, account=False).items():
                self._attempts[i][session].append(timing)
            self._repeat_s -= time.monotonic() - began

    def measurements(self) -> list[Measurement]:
        placements = [request.deployment.placement for request in self._requests]
        best = {placement: self._best_reference_ms(placement) for placement in set(placements)}
        judged = [
            [_judged(attempts, best[placement]) for attempts in sessions]
            for placement, sessions in zip(placements, self._attempts, strict=True)
        ]
        references: dict[Placement, list[float]] = {}
        for placement, sessions in zip(placements, judged, strict=True):
            references.setdefault(placement, []).extend(timing.reference_p50_ms for timing in sessions)
        usual = {placement: median(times) for placement, times in references.items() if times}
        found = [
            summarise(request, sessions, self._failed.get(i), usual.get(request.deployment.placement, math.nan))
            for i, (request, sessions) in enumerate(zip(self._requests, judged, strict=True))
        ]
        return [replace(m, machine=socket.gethostname()) for m in found]

    def _running_at(self, placement: Placement) -> list[int]:
        return [i for i, request in enumerate(self._requests) if request.deployment.placement == placement]

    def _best_reference_ms(self, placement: Placement) -> float:
        """The reference network's fastest time in all attempts so far."""
        sessions = [attempts for i in self._running_at(placement) for attempts in self._attempts[i]]
        return min((timing.reference_p50_ms for attempts in sessions for timing in attempts), default=math.nan)

    def _time(
        self, indices: Iterable[int], placement: Placement, seed: int, *, account: bool
    ) -> dict[int, SessionTiming]:
        """Run workers until each network has a timing or has failed."""
        timings: dict[int, SessionTiming] = {}
        remaining = list(indices)
        blameless_deaths = 0
        while remaining:
            report = run_worker(self._job(remaining, placement, seed), self._limits)
            timings.update(report.timings)
            self._failed.update(report.failed)
            if report.death is not None:
                blameless_deaths += report.culprit is None
                self._failed.update(dict.fromkeys(_blamed(report, remaining, blameless_deaths), report.death))
            before = len(remaining)
            remaining = [i for i in remaining if i not in timings and i not in self._failed]
            if account:
                self._account.add(before - len(remaining))
        return timings

    def _job(self, indices: Sequence[int], placement: Placement, seed: int) -> Job:
        models = tuple(
            JobModel(
                i, Path(self._requests[i].path).absolute(), self._requests[i].deployment, self._requests[i].streams
            )
            for i in indices
        )
        return Job(
            models=models,
            placement=placement,
            reference=self._reference,
            seconds_per_model=self._seconds_per_model,
            least_calls=self._least_calls,
            node_seconds=self._node_seconds,
            seed=seed,
        )


def _judged(attempts: Sequence[SessionTiming], best_reference_ms: float) -> SessionTiming:
    """What the attempts at one session say together.

    Those count as disturbed, too, where only the reference network shows it (busy neighbour, hot chip). Each is judged
    before they are compared: one that is slow in this way must not pass for an undisturbed one, which would make the
    other attempts be forgotten.
    """
    return reduce(quieter, (slowed_down(attempt, best_reference_ms, REFERENCE_TOLERANCE) for attempt in attempts))


def _blamed(report: WorkerReport, remaining: Sequence[int], blameless_deaths: int) -> Sequence[int]:
    """Networks that a worker's death is recorded against.

    A worker that dies outside of any network gets one more chance; when it happens again, nothing can be measured.
    """
    if report.culprit is not None:
        return [report.culprit]
    return remaining if blameless_deaths > 1 else []
