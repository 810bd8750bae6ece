"""Patterns of calls as people write them."""

import pytest

from nas.calls import CAMERA_MS, CONTINUOUS_MS, IDLE_MS, calls_text, interval_ms_of
from nas.deployment import Deployment
from nas.errors import UserError


@pytest.mark.parametrize(
    ("text", "interval_ms", "canonical"),
    [
        ("continuous", CONTINUOUS_MS, "continuous"),
        ("idle", IDLE_MS, "idle"),
        ("20/s", CAMERA_MS, "20/s"),
        (" 12.5 / S", 80.0, "12.5/s"),
        ("5/s", IDLE_MS, "idle"),
    ],
)
def test_a_pattern_is_an_interval_and_back(text: str, interval_ms: float, canonical: str) -> None:
    assert interval_ms_of(text) == interval_ms
    assert calls_text(interval_ms) == canonical
    assert interval_ms_of(canonical) == interval_ms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no pattern"),
        ("often", "is no pattern"),
        ("-20/s", "is no pattern"),
        ("20", "is no pattern"),
        ("1e3/s", "is no pattern"),
        ("0/s", "calls nothing"),
        ("4.9/s", "as cold as with idle"),
        ("5000/s", "as good as continuous"),
    ],
)
def test_what_is_no_pattern_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as error:
        interval_ms_of(text)
    assert repr(text) in str(error.value)


def test_deployments_differ_by_how_they_are_called() -> None:
    usual = Deployment("onnxruntime", "int8", 2)
    spaced = usual.called(50.0)
    assert (usual.calls, spaced.calls) == ("continuous", "20/s")
    assert spaced != usual
    assert spaced.continuous == usual
    assert (spaced.name, spaced.placement) == (usual.name, usual.placement)
    with pytest.raises(ValueError, match="an interval is finite"):
        usual.called(-1.0)
