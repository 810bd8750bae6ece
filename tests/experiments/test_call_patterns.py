"""The pure part of the experiment on calls with pauses."""

import json
from dataclasses import asdict

import pytest

from experiments.call_patterns import Timed, figures, page, read, retest_errors


def timed(network: str, deployment: str, predicted_ms: float, spaced_ms: tuple[float, ...], loop_ms: float) -> Timed:
    return Timed(
        network=network, deployment=deployment, predicted_ms=predicted_ms, spaced_ms=spaced_ms, continuous_ms=loop_ms
    )


FOUND = [
    timed("0", "onnxruntime-int8", 2.0, (1.9, 2.0, 2.1), 1.0),
    timed("0", "openvino-int8", 2.1, (3.0, 3.0, 3.3), 0.9),  # the fastest in a loop, and half as slow again in use
    timed("1", "onnxruntime-int8", 5.0, (4.0, 4.0, 4.0), 4.0),
    timed("1", "openvino-int8", 4.5, (), 60.0),
]


def test_figures() -> None:
    found = figures(FOUND)
    assert (found["networks"], found["figures"]) == (2, 3)
    assert found["within_10pct"] == pytest.approx(1 / 3)
    assert found["mean_error"] == pytest.approx((0 + 0.3 + 0.25) / 3)
    assert found["noise_floor"] == pytest.approx((0.05 + 0 + 0.05 + 0 + 0 + 0.1 + 0 + 0 + 0) / 9)
    assert found["slower_than_continuous"] == pytest.approx([1.0, 1.5, 2.0, 2.0 + 2 / 3, 3.0 + 1 / 3], abs=0.34)
    assert found["chosen_in_a_loop"] == {
        "within_5pct": 1, "mean_loss": pytest.approx(0.25), "largest_loss": pytest.approx(0.5)
    }  # fmt: skip
    assert found["chosen_by_one_session"]["within_5pct"] == 2
    assert found["chosen_by_prediction"]["within_5pct"] == 1, "the second network's prediction names what cannot be had"


def test_a_session_predicts_the_others_and_not_itself() -> None:
    assert retest_errors((1.9, 2.0, 2.1)) == pytest.approx([1 - 1.9 / 2.05, 0.0, 2.1 / 1.95 - 1])
    assert retest_errors((2.0, 1.0)) == pytest.approx([1.0, 0.5])
    assert retest_errors((5.0,)) == []
    errors = [error for t in FOUND for error in retest_errors(t.spaced_ms)]
    assert figures(FOUND)["retest_error"] == pytest.approx(sum(errors) / 9)
    assert figures(FOUND)["retest_within_10pct"] >= 8 / 9


def test_page() -> None:
    text = page(FOUND, "20/s", "--networks 2", "a processor, 2 threads")
    assert "2 random networks on one machine (a processor, 2 threads)" in text
    assert "| predicted within 10 % | 33% of 3 |" in text
    assert "| by calls in a tight loop | 1 of 2 | 25.0% | 50% |" in text
    assert "| 1 | openvino-int8 | 4.5 | too slow | 60 |" in text
    assert read(json.loads(json.dumps([asdict(t) for t in FOUND]))) == FOUND
