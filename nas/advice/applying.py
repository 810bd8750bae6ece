"""Predicted savings tried: the changed networks are built and measured beside the original."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nas.advice.what_if import WhatIf
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import QUIET
from nas.measure.protocol import measure
from nas.targets.preparing import deploy_untrained, new_folder
from search_spaces import Architecture
from search_spaces.signature import Size

SEED = 0


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
    sessions; what a change saves is the difference of medians that are corrected for the machine's drift.

    Raises `UserError` where the original could not be measured. A change that could not stays without a figure.
    """
    archs = [arch, *(what_if.architecture for what_if in chosen)]
    requests = [
        deploy_untrained(one, [deployment], new_folder(folder / f"applied-{place}"), SEED, size)[0]
        for place, one in enumerate(archs)
    ]
    first, *others = measure(requests, sessions=sessions, seconds_per_model=seconds_per_model)
    before_ms = first.drift_corrected_p50_ms
    if not math.isfinite(before_ms):
        raise UserError(f"the network could not be measured again: {first.failed}", "run the same command again")
    return Applied(
        before_ms=before_ms,
        disturbed=any(m.verdict != QUIET for m in (first, *others)),
        changes=tuple(
            what_if.measured(before_ms - m.drift_corrected_p50_ms)
            if math.isfinite(m.drift_corrected_p50_ms)
            else what_if
            for what_if, m in zip(chosen, others, strict=True)
        ),
    )
