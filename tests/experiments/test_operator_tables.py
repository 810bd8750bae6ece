"""Operator tables and the ladder on tiny networks."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from experiments import cpu_ladder, operator_tables
from experiments.cpu_ladder import Step
from experiments.operator_tables import Bert, markdown, ranked, tables
from nas.bench.models import BenchModel, read_model
from nas.data.images import image_input
from nas.measure.measurement import Measurement, MeasureRequest
from search_spaces.signature import TensorSpec
from tests.nas.small_bundles import timed

TOKENS = TensorSpec((6,), "int64", 50)


def test_operators_are_ranked_by_kind() -> None:
    found = ranked([("Conv", 2.0), ("Relu", 0.5), ("Conv", 1.0), ("Nothing", 0.0)])
    assert [(o.kind, o.calls, o.ms) for o in found] == [("Conv", 2, 3.0), ("Relu", 1, 0.5)]
    assert sum(o.share for o in found) == pytest.approx(1.0)


def test_the_encoder_is_that_of_pytorch() -> None:
    """The same weights in `torch.nn.TransformerEncoderLayer` give the same."""
    torch.manual_seed(0)
    ours = operator_tables.Layer(16, 2).eval()
    theirs = nn.TransformerEncoderLayer(16, 2, 64, dropout=0.0, activation="gelu", batch_first=True).eval()
    pairs = {
        "self_attn.in_proj_": ours.qkv, "self_attn.out_proj.": ours.out, "linear1.": ours.up, "linear2.": ours.down,
        "norm1.": ours.first, "norm2.": ours.second,
    }  # fmt: skip
    state = {f"{name}{kind}": getattr(module, kind) for name, module in pairs.items() for kind in ("weight", "bias")}
    theirs.load_state_dict(state)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_a_table_for_each_runtime() -> None:
    networks = {"tiny BERT": (lambda: Bert(50, 6, 16, 2, 2), TOKENS)}
    found, left_out = tables(networks, 1, 0.02, tell=lambda _: None)
    assert [(t.runtime, t.time) for t in found] == [
        ("torch eager", "self CPU"), ("onnxruntime", "runtime's profiler"), ("openvino", "runtime's profiler")
    ]  # fmt: skip
    assert left_out == []
    eager, ort, _ = found
    assert sum(o.calls for o in eager.operators if o.kind == "aten::addmm") >= 8, "four dense layers in each of two"
    assert {"Gemm", "SkipLayerNormalization"} <= {o.kind for o in ort.operators}, "as it ran after its fusions"
    for table in found:
        assert sum(o.share for o in table.operators) == pytest.approx(1.0)
        assert table.p50_ms > 0
    text = markdown(found, ["DeiT-T in openvino: it is not installed"])
    assert "enqueue" in text
    assert "### tiny BERT" in text
    assert text.endswith("not installed\n")


def test_what_is_not_installed_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_tables, "find_spec", lambda name: None if name == "onnx" else object())
    found, left_out = tables({"tiny": (lambda: Bert(50, 6, 16, 2, 1), TOKENS)}, 1, 0.01, tell=lambda _: None)
    assert [table.runtime for table in found] == ["torch eager"]
    assert left_out == ["tiny: no file for other runtimes, because onnx is not installed"]


def test_on_a_gpu_it_is_device_time_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler that says two times of each operator, and a device that computes nothing in the place of a GPU."""
    waits = list[str]()

    class Profiler:
        def __init__(self, activities: object) -> None: ...

        def __enter__(self) -> "Profiler":
            return self

        def __exit__(self, *_: object) -> None: ...

        def key_averages(self) -> list[SimpleNamespace]:
            return [
                SimpleNamespace(key=key, count=len(waits), self_cpu_time_total=cpu, self_device_time_total=device)
                for key, cpu, device in (("aten::conv2d", 10.0, 3e6), ("aten::copy_", 9e6, 1e6), ("a kernel", 0, 4e6))
            ]

    monkeypatch.setattr(torch.profiler, "profile", Profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("wait"))
    found = operator_tables.eager_table("n", nn.Linear(4, 4), torch.zeros(1, 4), 0.01, "meta")
    assert [o.kind for o in found.operators] == ["aten::conv2d", "aten::copy_"], "not in the order of enqueue times"
    assert found.operators[0].share == pytest.approx(0.75)
    assert found.time == "device"
    assert waits, "every call is waited for"


def test_steps_that_were_not_measured_are_said() -> None:
    steps = [
        Step(network="R", how="eager", p50_ms=40.0, spread_pct=None, disturbed=False, why_not=None),
        Step(network="R", how="bf16", p50_ms=None, spread_pct=None, disturbed=False, why_not="no such instructions"),
        Step(network="S", how="int8", p50_ms=0.4, spread_pct=2.0, disturbed=True, why_not=None),
    ]
    text = cpu_ladder.markdown(steps, "a processor", 2)
    assert "| R | eager | 40 | - | 1 |" in text
    assert "| S | int8 | 0.4 * | 2.0 | 100 |" in text
    assert "Not measured: R, bf16: no such instructions." in text


def test_the_ladder_times_every_step_of_both_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real files, which nobody times here: eager PyTorch alone is called."""
    asked = list[str]()

    def instant(requests: Sequence[MeasureRequest], **_: object) -> list[Measurement]:
        asked.extend(request.path.name for request in requests)
        return [timed(request, 2.0) for request in requests]

    monkeypatch.setattr(cpu_ladder, "measure", instant)
    monkeypatch.setattr(cpu_ladder, "STEPS", (("onnxruntime", "fp32"), ("onnxruntime", "fp16")))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    searched = read_model(str(cpu_ladder.save_stand_in(tmp_path / "stand-in")), None)
    resnet = BenchModel(name="resnet", input=image_input(32), torchvision="squeezenet1_1")
    steps = cpu_ladder.ladder(resnet, searched, 1, tmp_path, 0.01)
    assert [(s.network == "resnet", s.how, s.p50_ms is None) for s in steps] == [
        (True, "torch eager fp32", False), (True, "torch.compile fp32", True), (True, "onnxruntime-fp32", False),
        (True, "onnxruntime-fp16", True), (False, "onnxruntime-fp32", False), (False, "onnxruntime-fp16", True),
    ]  # fmt: skip
    assert "no C++ compiler" in str(steps[1].why_not)
    assert "for GPUs" in str(steps[3].why_not)
    assert asked == ["b1.onnx", "b1.onnx"]
