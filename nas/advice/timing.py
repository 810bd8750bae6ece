"""A network's operators and its undisturbed calls in several deployments, timed in the same sessions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from nas.bench.preparing import ModelFiles, path_or_reason
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes.nodes import NodeTime

PROFILED_S = 0.3
"""Seconds under the profiler, per deployment and session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One deployment of a network."""

    deployment: Deployment
    p50_ms: float
    """Of calls in a row without a profiler, right before those under it; NaN where it could not be measured."""
    disturbed: bool
    nodes: tuple[NodeTime, ...]
    """Operators in the order they ran: medians over the sessions."""
    failed: str | None


def timed(
    files: ModelFiles, deployments: Sequence[Deployment], sessions: int, seconds_per_model: float = 0.3
) -> list[Timed]:
    """Each deployment; one whose file cannot be made, or that does not run, says why."""
    requests, reasons = list[MeasureRequest](), dict[Deployment, str]()
    for deployment in deployments:
        made = path_or_reason(files, deployment)
        if isinstance(made, str):
            reasons[deployment] = made
        else:
            requests.append(MeasureRequest(made, deployment))
    measured = {
        m.request.deployment: m
        for m in measure(
            requests, sessions=sessions, seconds_per_model=seconds_per_model, node_seconds=PROFILED_S
        )
    }  # fmt: skip
    return [_timed(d, measured.get(d), reasons.get(d)) for d in deployments]


def require_timed(found: Timed) -> Timed:
    """The same. Raises `UserError` where it was not measured."""
    if found.failed is not None:
        raise UserError(f"{found.deployment.name} was not measured: {found.failed}", "ask for another --precision")
    return found


def typical_nodes(sessions: Sequence[Sequence[NodeTime]]) -> tuple[NodeTime, ...]:
    """The operators of the first session with the median of their times over all sessions that ran the same ones."""
    if not sessions:
        return ()
    first = sessions[0]
    alike = [own for own in sessions if [n.name for n in own] == [n.name for n in first]]
    return tuple(replace(node, ms=median(own[place].ms for own in alike)) for place, node in enumerate(first))


def _timed(deployment: Deployment, measured: Measurement | None, reason: str | None) -> Timed:
    if measured is None or not math.isfinite(measured.p50_ms):
        failed = reason or (measured.failed if measured is not None else None) or "nothing says why"
        return Timed(deployment=deployment, p50_ms=math.nan, disturbed=False, nodes=(), failed=failed)
    beside_ms = [s.nodes_p50_ms for s in measured.sessions if s.nodes_p50_ms is not None]
    return Timed(
        deployment=deployment,
        p50_ms=median(beside_ms) if beside_ms else measured.p50_ms,
        disturbed=measured.verdict != "quiet",
        nodes=typical_nodes([s.nodes for s in measured.sessions if s.nodes]),
        failed=None,
    )
