"""Networks against measured ceilings: the arithmetic, and a real measurement of a tiny network."""

import json
from pathlib import Path

import pytest
import torch

from nas.bench.bench import BenchConfig
from nas.compare.compare import CompareConfig, run_compare
from nas.compare.roofline import measured_roofline, roof_of
from nas.measure.devices.cuda_ceiling import REPEATS, ROUNDS, cuda_ceiling
from tests.nas.bench.documents import document
from tests.nas.measure.fake_gpu import FakeGpu
from tests.nas.tiny import write_tiny_network

LAYERS = [{"macs": 4_000_000, "elements": 1_000}, {"macs": 1_000, "elements": 500_000}]


def test_each_layer_needs_the_longer_of_its_two_times() -> None:
    roof = roof_of(LAYERS, "fp32", gmacs_per_s=10.0, gb_per_s=20.0, p50_ms=1.0)
    assert roof.floor_ms == pytest.approx(4e6 / 10e9 * 1e3 + 4 * 500_000 / 20e9 * 1e3)
    assert roof.share == pytest.approx(0.5)
    assert roof.bound == "compute"
    assert roof_of(LAYERS, "int8", 10.0, 20.0, 1.0).floor_ms == pytest.approx(0.4 + 0.025), "elements of one byte"
    assert roof_of(LAYERS[1:], "fp32", 10.0, 20.0, 0.2).bound == "memory"
    assert roof_of(LAYERS, "fp32", 10.0, 20.0, 2.0).bound == "overhead"


def test_a_gpu_is_timed_by_events_behind_a_busy_device() -> None:
    gpu = FakeGpu()
    product, copy = cuda_ceiling(gpu, torch.float32, side=16, copied_bytes=1000)
    per_call_ms = 1.0 / REPEATS  # the fake ends a millisecond of work with each event
    assert product == pytest.approx(16**3 / (per_call_ms * 1e6))
    assert copy == pytest.approx(2 * 1000 / (per_call_ms * 1e6))
    assert gpu.log == ["synchronise", "queue", "synchronise"] * (2 * ROUNDS)


def test_a_bench_with_ceilings_has_a_roofline(tmp_path: Path) -> None:
    bench = document()
    bench["roofline"] = {
        "ceilings": [
            {"runtime": "openvino", "precision": "int8", "threads": 2, "runs_on": "cpu", "gmacs_per_s": 10.0,
             "gb_per_s": 20.0},
            {"runtime": "onnxruntime", "precision": "fp32", "threads": 2, "runs_on": "cpu", "gmacs_per_s": None,
             "gb_per_s": None},
        ],
        "networks": [{"model": model["model"], "products": LAYERS} for model in bench["models"]],
    }  # fmt: skip
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench))
    found = run_compare(CompareConfig(a=path, b=path, deployments=("openvino-int8", "onnxruntime-fp32")))
    photos = found["networks"][0]
    assert photos["a"]["roofline"]["share"] == pytest.approx(0.425 / photos["a"]["calls"][0]["p50_ms"])
    assert photos["a"]["roofline"]["reached_gmacs_per_s"] == pytest.approx(
        4_001_000 / photos["a"]["calls"][0]["p50_ms"] / 1e6
    )
    assert photos["b"]["roofline"] is None, "a runtime that does not tell"


def test_ceilings_and_products_of_a_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nas.advice import ceiling
    from nas.measure import protocol

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(protocol, "REPEATS", 0)
    monkeypatch.setattr(ceiling, "SESSIONS", 1)
    model = write_tiny_network(tmp_path / "tiny.onnx")
    config = BenchConfig(models=(str(model),), runtimes=("onnxruntime", "torch"), precisions=("fp32",), threads=1)
    found = measured_roofline(config)
    ort, eager = found["ceilings"]
    assert (ort["runtime"], eager["runtime"]) == ("onnxruntime", "torch")
    assert ort["gmacs_per_s"] > 0
    assert ort["gb_per_s"] > 0
    assert eager["gmacs_per_s"] is None
    (network,) = found["networks"]
    convolution, dense = network["products"]
    assert convolution["macs"] > dense["macs"] > 0
