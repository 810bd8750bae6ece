"""The result of measuring one network: what fresh sessions agree on, and how far they disagree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.statistics import drift_corrected, spread_pct

QUIET = "quiet"
DISTURBED = "disturbed"


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """A network to measure: the file that its runtime loads, and how it is run."""

    path: Path
    deployment: Deployment
    streams: int = 1
    """Calls at once, at most the deployment's threads. From 2 on a time is that of a round of calls divided by their
    number, the reciprocal of the throughput: how long one call takes is then not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Latencies of one network. Every latency is NaN (null in JSON) where no session succeeded."""

    request: MeasureRequest
    sessions: tuple[SessionTiming, ...]
    p50_ms: float
    """Median over the sessions of each session's percentile; likewise p90 and p99."""
    p90_ms: float
    p99_ms: float
    worst_session_p50_ms: float
    between_session_spread_pct: float
    """(slowest - fastest) / median of the sessions' p50: the noise floor."""
    drift_corrected_p50_ms: float
    """p50 with each session scaled by its reference network: the better one to compare networks of one call with each
    other; `p50_ms` is what was really seen."""
    reference_p50_ms: float
    """The reference network's median over the sessions: how fast the machine was then."""
    memory_bytes: int
    """Largest over the sessions."""
    energy_mj: float
    """Median over the sessions; NaN where it could not be read."""
    verdict: str
    """`quiet`, or `disturbed` where a session stayed disturbed after being repeated."""
    failed: str | None
    """Reason why the network could not be measured in every session, None where it could."""
    machine: str = ""
    """The host that measured it; empty where that was not recorded."""

    @property
    def preprocess_ms(self) -> float | None:
        """Median over the sessions; None where calls were of the network alone."""
        return _median_or_none([s.preprocess_ms for s in self.sessions])

    @property
    def postprocess_ms(self) -> float | None:
        """Median over the sessions; None where calls were of the network alone."""
        return _median_or_none([s.postprocess_ms for s in self.sessions])

    @property
    def network_ms(self) -> float | None:
        """Median over the sessions of the network between them; None where calls were of the network alone."""
        return _median_or_none([s.network_ms for s in self.sessions])

    @property
    def device_ms(self) -> float | None:
        """Median over the sessions of a call's time on the GPU alone; None where there is no such figure."""
        return _median_or_none([s.device_ms for s in self.sessions])

    @property
    def disturbance(self) -> str | None:
        """Why the first disturbed session cannot be trusted; None on a quiet machine."""
        return next((s.disturbance for s in self.sessions if s.disturbance is not None), None)

    def keeps(self, limit_ms: float) -> bool:
        """True if every fresh session's p50 was within the limit, and none failed."""
        return self.failed is None and self.worst_session_p50_ms <= limit_ms

    def to_json(self) -> dict[str, Any]:
        document = {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(self).items()
        }
        document["request"] = {**asdict(self.request), "path": str(self.request.path)}
        document["sessions"] = [session.to_json() for session in self.sessions]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Measurement:
        values: dict[str, Any] = {
            key: math.nan if value is None and key != "failed" else value for key, value in document.items()
        }
        request = document["request"]
        values["request"] = MeasureRequest(
            Path(request["path"]), Deployment(**request["deployment"]), request.get("streams", 1)
        )
        values["sessions"] = tuple(SessionTiming.from_json(session) for session in document["sessions"])
        return cls(**values)


def summarise(
    request: MeasureRequest, sessions: Sequence[SessionTiming], failed: str | None, usual_reference_ms: float
) -> Measurement:
    """Summarise the sessions of one network.

    Args:
        request: the network.
        sessions: its successful sessions, possibly none.
        failed: why a session failed.
        usual_reference_ms: the reference network's median over all sessions of the batch.
    """
    medians = [session.p50_ms for session in sessions]
    references = [session.reference_p50_ms for session in sessions]
    disturbed = any(session.disturbance is not None for session in sessions)
    return Measurement(
        request=request,
        sessions=tuple(sessions),
        p50_ms=_median(medians),
        p90_ms=_median([session.p90_ms for session in sessions]),
        p99_ms=_median([session.p99_ms for session in sessions]),
        worst_session_p50_ms=max((session_latency_ms(session, 50) for session in sessions), default=math.nan),
        between_session_spread_pct=spread_pct(medians) if medians else math.nan,
        drift_corrected_p50_ms=drift_corrected(medians, references, usual_reference_ms) if medians else math.nan,
        reference_p50_ms=_median(references),
        memory_bytes=max((session.memory_bytes for session in sessions), default=0),
        energy_mj=_median([session.energy_mj for session in sessions if session.energy_mj is not None]),
        verdict=DISTURBED if disturbed else QUIET,
        failed=failed,
    )


def quieter(first: SessionTiming, second: SessionTiming) -> SessionTiming:
    """The one of two attempts at a session to keep: an undisturbed one, else the faster (others only add time), which
    remembers what the other has shown (`SessionTiming.attempts_ms`)."""
    if (first.disturbance is None) != (second.disturbance is None):
        return first if first.disturbance is None else second
    kept, other = (first, second) if first.p50_ms <= second.p50_ms else (second, first)
    if kept.disturbance is None:
        return kept
    shown = (other.p50_ms, other.p90_upper_ms, other.p99_upper_ms)
    return replace(kept, attempts_ms=(*first.attempts_ms, *second.attempts_ms, shown))


def session_latency_ms(session: SessionTiming, percentile: int) -> float:
    """What a session says of a percentile (50, 90 or 99) of its calls.

    Of the median that is what it measured, of slow calls the upper confidence bound: few of its calls are that slow. Of
    a session that stayed disturbed it is the slowest attempt.
    """
    place = (50, 90, 99).index(percentile)
    own = (session.p50_ms, session.p90_upper_ms, session.p99_upper_ms)
    attempts = [ms for attempt in (own, *session.attempts_ms) if (ms := attempt[place]) is not None]
    return max(attempts, default=float(getattr(session, f"p{percentile}_ms")))


def session_least_ms(session: SessionTiming, percentile: int) -> float | None:
    """What a session proves that a percentile (50, 90 or 99) of its calls takes at least; None where it proves nothing.

    Of the median that is what it measured, of slow calls the lower confidence bound.
    """
    return (session.p50_ms, session.p90_lower_ms, session.p99_lower_ms)[(50, 90, 99).index(percentile)]


def slowed(measurement: Measurement, factor: float) -> Measurement:
    """The measurement, had every call taken `factor` times as long."""

    def longer(ms: float | None) -> float | None:
        return None if ms is None else factor * ms

    sessions = [
        replace(
            session,
            p50_ms=factor * session.p50_ms,
            p90_ms=factor * session.p90_ms,
            p99_ms=factor * session.p99_ms,
            p90_upper_ms=longer(session.p90_upper_ms),
            p99_upper_ms=longer(session.p99_upper_ms),
            p90_lower_ms=longer(session.p90_lower_ms),
            p99_lower_ms=longer(session.p99_lower_ms),
            attempts_ms=tuple((factor * p50, longer(p90), longer(p99)) for p50, p90, p99 in session.attempts_ms),
        )
        for session in measurement.sessions
    ]
    found = summarise(measurement.request, sessions, measurement.failed, measurement.reference_p50_ms)
    return replace(found, machine=measurement.machine)


def slowed_down(session: SessionTiming, best_reference_ms: float, tolerance: float) -> SessionTiming:
    """The session, marked as disturbed where its reference network exceeded the best one by `tolerance`."""
    excess = session.reference_p50_ms / best_reference_ms - 1
    if session.disturbance is not None or excess <= tolerance:
        return session
    return replace(session, disturbance=f"the reference network was {excess:.0%} slower than in the best session")


def _median_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _median(values: Sequence[float]) -> float:
    return median(values) if values else math.nan
