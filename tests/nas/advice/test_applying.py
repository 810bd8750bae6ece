"""What an applied change saved: the machine's drift, between sessions and within one, is not taken for a saving."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.advice import applying
from nas.advice.applying import TOGETHER, share_of
from nas.advice.what_if import WhatIf
from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from search_spaces import Architecture, load_search_space


def measured(sessions_ms: Sequence[float], references_ms: Sequence[float] = (1.0, 1.0, 1.0)) -> Measurement:
    timings = [
        SessionTiming(
            p50_ms=ms, p90_ms=ms, p99_ms=ms, calls=9, reference_p50_ms=reference_ms, load_ms=1.0, memory_bytes=1,
            cpu_share=1.0, disturbance=None,
        )
        for ms, reference_ms in zip(sessions_ms, references_ms, strict=True)
    ]  # fmt: skip
    return summarise(MeasureRequest(Path("m"), Deployment("onnxruntime", "fp32", 1)), timings, None, 1.0)


@pytest.mark.parametrize("drift_ms", [0.0, 0.3, -0.2])
def test_drift_cancels(drift_ms: float) -> None:
    """Three sessions of different speeds; within each, what is measured later takes `drift_ms` longer per place."""
    speeds = (1.0, 1.5, 0.8)
    first, changed, last = (measured([s * (ms + drift_ms * i) for s in speeds]) for i, ms in enumerate((10, 9, 10)))
    assert share_of(changed, first, last) == pytest.approx((9 + drift_ms) / (10 + drift_ms))


def test_a_session_that_was_repeated_at_another_speed_counts_alike() -> None:
    same = measured([10.0, 10.0, 10.0])
    assert share_of(measured([9.0, 18.0, 18.0], [1.0, 2.0, 2.0]), same, same) == pytest.approx(0.9)


def test_many_changes_each_have_the_original_beside_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[Architecture]] = []

    def measure(requests: Sequence[Any], **_: Any) -> list[Measurement]:
        asked.append(list(requests))
        return [measured([10.0 - i] * 3) if 0 < i < len(requests) - 1 else measured([10.0] * 3)
                for i in range(len(requests))]  # fmt: skip

    monkeypatch.setattr(applying, "measure", measure)
    monkeypatch.setattr(applying, "deploy_untrained", lambda arch, *_: [arch])
    space = load_search_space("mobile")
    archs = [space.architecture(row) for row in space.sample(TOGETHER + 3, np.random.default_rng(0))]
    chosen = [
        WhatIf(block="stage1", decision="width", change="", architecture=arch, modules=(), saves_ms=1.0, std_ms=0.1,
               d_macs=-1, worth=1.0)
        for arch in archs[1:]
    ]  # fmt: skip
    found = applying.applied(archs[0], chosen, Deployment("onnxruntime", "fp32", 1), (10,), tmp_path, 3)
    assert [[one[0], one[-1]] for one in asked] == [[archs[0]] * 2] * 2
    assert [one[1:-1] for one in asked] == [archs[1 : TOGETHER + 1], archs[TOGETHER + 1 :]]
    assert [c.architecture for c in found.changes] == archs[1:]
    assert [c.measured_ms for c in found.changes] == pytest.approx([*range(1, TOGETHER + 1), 1, 2])
    assert found.before_ms == 10.0


def test_one_disturbed_session_does_not_decide() -> None:
    same = measured([10.0, 10.0, 10.0])
    assert share_of(measured([9.0, 9.1, 20.0]), same, same) == pytest.approx(0.91)
