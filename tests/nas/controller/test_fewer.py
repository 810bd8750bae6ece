"""Deployments that a short search of networks which are called with pauses considers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.controller.prediction.fewer import LEAST, affordable_deployments, promising
from nas.deployment import DYNAMIC_INT8, Deployment
from nas.limits import Limits
from nas.targets.latency import LatencyModel
from predictors.base import Prediction
from search_spaces import Choices, SearchSpace, load_search_space
from search_spaces.signature import Size

MIXED = load_search_space("mixed")
SIZE = (10,)
FP32, INT8 = (Deployment("onnxruntime", precision, 2, interval_ms=50.0) for precision in ("fp32", "int8"))
SAMPLED = MIXED.costs(MIXED.sample(2000, np.random.default_rng(1)), SIZE)["macs"]
USUAL_MACS = float(np.median(SAMPLED))
BF16, OTHER = replace(FP32, runtime="openvino", precision="bf16"), replace(INT8, runtime="openvino")


class Line(LatencyModel):
    """Latencies of a line: what each deployment takes for any network, and for one of the usual size besides."""

    def __init__(self, lines: Mapping[Deployment, tuple[float, float]]) -> None:
        self.deployments = tuple(lines)
        self._lines = lines

    def predict(self, space: SearchSpace, choices: Choices, size: Size) -> dict[Deployment, Prediction]:
        sizes: NDArray[np.float64] = space.costs(choices, size)["macs"] / USUAL_MACS
        return {d: Prediction(start + each * sizes, 0.1 * sizes) for d, (start, each) in self._lines.items()}


def chosen(model: LatencyModel, limit_ms: float, count: int = 2) -> Sequence[Deployment]:
    return promising(model, MIXED, SIZE, Limits.of(latency_ms=limit_ms), count)


def test_they_are_the_fastest_for_networks_that_take_about_the_limit() -> None:
    model = Line({FP32: (0.0, 1.0), INT8: (0.5, 0.5), BF16: (2.0, 0.25), OTHER: (2.0, 0.1)})
    smallest, largest = SAMPLED.min() / USUAL_MACS, SAMPLED.max() / USUAL_MACS
    assert smallest < 0.5, "fp32 is the fastest there"
    assert largest > 8, "the other int8 is the fastest there"
    assert chosen(model, 0.01) == (FP32, INT8)
    assert chosen(model, 9.0) == (BF16, OTHER)
    assert chosen(model, 9.0, 3) == (INT8, BF16, OTHER)
    assert chosen(model, 9.0, 4) == model.deployments


def test_one_does_not_round_where_one_can() -> None:
    fast = {INT8: (1.0, 0.01), OTHER: (1.1, 0.01)}
    assert chosen(Line({**fast, FP32: (9.0, 0.1), BF16: (5.0, 0.1)}), 2.0) == (INT8, BF16)
    dynamic = replace(INT8, precision=DYNAMIC_INT8)
    assert chosen(Line({**fast, dynamic: (1.2, 0.01)}), 2.0) == (INT8, OTHER)


def test_all_networks_count_where_no_call_is_limited() -> None:
    model = Line({FP32: (0.0, 1.0), INT8: (1.0, 0.4), BF16: (0.0, 2.0)})  # int8 is faster for the larger ones alone
    assert promising(model, MIXED, SIZE, Limits.of(max_params=1e6), 1) == (FP32,)
    assert promising(model, MIXED, SIZE, Limits.of(latency_ms=9.0), 2) == (FP32, INT8)


@pytest.mark.parametrize(("budget_s", "count"), [(1.0, LEAST), (60.0, LEAST), (100.0, 3), (600.0, 18)])
def test_more_time_affords_more(budget_s: float, count: int) -> None:
    assert affordable_deployments(budget_s) == count
