"""Whether a candidate is worth a training: measured untrained, in one session where that says it clearly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.controller.finalists import CLEAR, FinalRound
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.values import Evaluated
from nas.limits import Limits
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.measure.site import this_host
from nas.targets.latency import LatencyModel
from nas.tasks import TASKS
from search_spaces import load_search_space
from tests.nas.executors.tasks import tiny_data
from tests.nas.fake_device import FP32, fake_profile

LIMIT_MS = 0.6


def timing(ms: float) -> SessionTiming:
    return SessionTiming(
        p50_ms=ms, p90_ms=ms, p99_ms=ms, calls=500, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1, cpu_share=1.0,
        disturbance=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one_ms", "three_ms", "sessions", "promising"),
    [
        (0.9 * LIMIT_MS / CLEAR, None, [1], True),
        (1.1 * LIMIT_MS * CLEAR, None, [1], False),
        (0.99 * LIMIT_MS, 0.98 * LIMIT_MS, [1, 3], True),
        (0.99 * LIMIT_MS, 1.01 * LIMIT_MS, [1, 3], False),
        (1.02 * LIMIT_MS, 0.99 * LIMIT_MS, [1, 3], True),
    ],
)
def test_one_session_decides_where_it_is_clear(
    tmp_path: Path, one_ms: float, three_ms: float | None, sessions: list[int], promising: bool
) -> None:
    asked: list[int] = []

    def measure(requests: Sequence[MeasureRequest], *, sessions: int = 3, **options: Any) -> list[Measurement]:
        asked.append(sessions)
        ms = one_ms if sessions == 1 else three_ms
        assert ms is not None
        return [summarise(r, [timing(ms)] * sessions, None, 1.0) for r in requests]

    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    choices = space.sample(500, np.random.default_rng(0))
    near = int(np.abs(scorer.worst_ratio(choices) - 1.0).argmin())
    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=1,
        objective="accuracy", limits=limits, max_drop=0.01, site=replace(this_host(), measure=measure), folder=tmp_path,
    )  # fmt: skip
    candidate = Evaluated(arch=space.architecture(choices[near]), trial=0, value=0.5, seconds=1.0)
    assert final.is_promising(candidate) is promising
    assert asked == sessions
