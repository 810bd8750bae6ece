"""Deployments that networks are made for."""

from typing import Any

import pytest

from nas.baseline import run
from nas.baseline.run import considered
from nas.deploy.tried import TriedDeployment
from nas.deployment import Deployment
from tests.nas.controller.finals import session
from tests.nas.controller.finals import tried as tried_file

FP32, BF16, INT8 = (Deployment("openvino", precision, 2) for precision in ("fp32", "bf16", "int8"))
OTHER_INT8 = Deployment("onnxruntime", "int8", 2)


def tried(deployment: Deployment, p50_ms: float, **known: Any) -> TriedDeployment:
    return tried_file(deployment, [session(p50_ms)], 0.9, **{"accepted": True, **known})


def names(found: list[TriedDeployment]) -> list[str]:
    return [t.deployment.name for t in found]


def test_the_fastest_that_keep_the_accuracy_are_taken() -> None:
    all_keep = [tried(FP32, 4.0), tried(INT8, 1.0), tried(BF16, 2.0), tried(OTHER_INT8, 1.5)]
    assert names(considered(all_keep)) == ["openvino-int8", "onnxruntime-int8"]
    again = [tried(INT8, 1.0), tried(INT8, 1.1, in_float="last layer"), tried(BF16, 2.0)]
    assert names(considered(again)) == ["openvino-int8", "openvino-bf16"]
    fewer = [tried(INT8, 1.0, fewer_threads=True), tried(FP32, 4.0)]
    assert names(considered(fewer)) == ["openvino-fp32"]


def test_int8_is_considered_where_the_baseline_alone_rounds_badly() -> None:
    lost = [
        tried(FP32, 4.0),
        tried(BF16, 2.0),
        tried(INT8, 1.0, accepted=False),
        tried(OTHER_INT8, 1.2, accepted=False),
    ]
    assert names(considered(lost)) == ["openvino-bf16", "openvino-int8"]
    slow = [tried(FP32, 4.0), tried(BF16, 2.0), tried(INT8, 3.0, accepted=False)]
    assert names(considered(slow)) == ["openvino-bf16", "openvino-fp32"]
    kept_in_part = [tried(FP32, 4.0), tried(INT8, 1.0, accepted=False), tried(INT8, 1.4, in_float="last layer")]
    assert names(considered(kept_in_part)) == ["openvino-int8", "openvino-fp32"]


def test_one_deployment_alone_is_one_that_keeps_the_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CONSIDERED", 1)
    assert names(considered([tried(FP32, 4.0), tried(INT8, 1.0, accepted=False)])) == ["openvino-fp32"]
