"""Predicted savings tried: the changed networks are built and measured beside the original."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from nas.advice.what_if import WhatIf
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.job import SessionTiming
from nas.measure.measurement import QUIET, Measurement
from nas.measure.protocol import measure
from nas.targets.preparing import deploy_untrained, new_folder
from search_spaces import Architecture
from search_spaces.signature import Size

SEED = 0
TOGETHER = 8
"""Most changes that are measured beside the original at once: with it, the networks that a process times in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Changes that were built and measured."""

    before_ms: float
    """Latency of the original, measured beside them."""
    disturbed: bool
    """True if something else kept the machine busy, also when the measurement was repeated."""
    changes: tuple[WhatIf, ...]
    """With what each really saved."""


def applied(
    arch: Architecture,
    chosen: Sequence[WhatIf],
    deployment: Deployment,
    size: Size,
    folder: Path,
    sessions: int,
    seconds_per_model: float = 0.3,
) -> Applied:
    """The original and each of the `chosen` changes, measured.

    All networks are built alike, with random weights, which do for their speed, and measured in turns in the same
    sessions, the original before and after the others: a machine drifts within a session too, and the network that
    comes first in it took 3 to 8 % longer than the same one at other places. What a change saves is the median over
    the sessions of its share of the original in the same session.

    Raises `UserError` where the original could not be measured. A change that could not stays without a figure.
    """
    before: list[float] = []
    changes: list[WhatIf] = []
    disturbed = False
    for start in range(0, max(1, len(chosen)), TOGETHER):
        some = chosen[start : start + TOGETHER]
        archs = [arch, *(what_if.architecture for what_if in some), arch]
        requests = [
            deploy_untrained(one, [deployment], new_folder(folder / f"applied-{start}-{place}"), SEED, size)[0]
            for place, one in enumerate(archs)
        ]
        first, *others, last = measure(requests, sessions=sessions, seconds_per_model=seconds_per_model)
        failed = first.failed or last.failed
        if failed:
            raise UserError(f"the network could not be measured again: {failed}", "run the same command again")
        before_ms = (first.drift_corrected_p50_ms + last.drift_corrected_p50_ms) / 2
        before.append(before_ms)
        disturbed |= any(m.verdict != QUIET for m in (first, *others, last))
        changes += [
            what_if if m.failed else what_if.measured(before_ms * (1.0 - share_of(m, first, last)))
            for what_if, m in zip(some, others, strict=True)
        ]
    return Applied(before_ms=mean(before), disturbed=disturbed, changes=tuple(changes))


def share_of(changed: Measurement, first: Measurement, last: Measurement) -> float:
    """Latency of a changed network over that of the original, which was measured before and after it in each session:
    the median over the sessions, each by its reference network: one that was disturbed is repeated alone, at another
    time."""
    sessions = zip(changed.sessions, first.sessions, last.sessions, strict=True)
    return median(2 * _by_reference(c) / (_by_reference(a) + _by_reference(b)) for c, a, b in sessions)


def _by_reference(session: SessionTiming) -> float:
    return session.p50_ms / session.reference_p50_ms
