"""What an applied change saved: the machine's drift, between sessions and within one, is not taken for a saving."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from nas.advice.applying import share_of
from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise


def measured(sessions_ms: Sequence[float]) -> Measurement:
    timings = [
        SessionTiming(
            p50_ms=ms, p90_ms=ms, p99_ms=ms, calls=9, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1, cpu_share=1.0,
            disturbance=None,
        )
        for ms in sessions_ms
    ]  # fmt: skip
    return summarise(MeasureRequest(Path("m"), Deployment("onnxruntime", "fp32", 1)), timings, None, 1.0)


@pytest.mark.parametrize("drift_ms", [0.0, 0.3, -0.2])
def test_drift_cancels(drift_ms: float) -> None:
    """Three sessions of different speeds; within each, what is measured later takes `drift_ms` longer per place."""
    speeds = (1.0, 1.5, 0.8)
    first, changed, last = (measured([s * (ms + drift_ms * i) for s in speeds]) for i, ms in enumerate((10, 9, 10)))
    assert share_of(changed, first, last) == pytest.approx((9 + drift_ms) / (10 + drift_ms))


def test_one_disturbed_session_does_not_decide() -> None:
    same = measured([10.0, 10.0, 10.0])
    assert share_of(measured([9.0, 9.1, 20.0]), same, same) == pytest.approx(0.91)
