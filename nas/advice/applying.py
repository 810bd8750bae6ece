"""Predicted savings tried: the changed networks are built and measured beside the original."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nas.advice.what_if import WhatIf
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.protocol import measure
from nas.targets.preparing import deploy_untrained, new_folder
from search_spaces import Architecture
from search_spaces.signature import Size

SEED = 0


def applied(
    arch: Architecture,
    chosen: Sequence[WhatIf],
    deployment: Deployment,
    size: Size,
    folder: Path,
    sessions: int,
    seconds_per_model: float = 0.3,
) -> tuple[float, list[WhatIf]]:
    """Latency in ms of the original, and the changes with what each of them really saved.

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
    return before_ms, [
        what_if.measured(before_ms - m.drift_corrected_p50_ms)
        if math.isfinite(m.drift_corrected_p50_ms)
        else replace(what_if, measured_ms=None)
        for what_if, m in zip(chosen, others, strict=True)
    ]
