"""Runtimes take token ids as they take images: shape, type and values come from the file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes import load_runtime
from nas.runtimes.streams import load_streams
from nas.runtimes.torch_eager import TorchEager
from search_spaces.signature import TensorSpec

TOKENS = TensorSpec((16,), "int64", 50)
DEPLOYMENTS = [
    Deployment(runtime, precision, 1)
    for runtime in ("onnxruntime", "openvino", "torch")
    for precision in ("fp32", "int8")
    if (runtime, precision) != ("torch", "int8")
]


class _Bag(nn.Module):
    """Mean of embedded ids, then classes; ids beyond the vocabulary end in an error."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 32)
        self.hidden = nn.Linear(32, 64)
        self.head = nn.Linear(64, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(torch.relu(self.hidden(self.embedding(ids).mean(1))))
        return logits


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = export_onnx(_Bag().eval(), TOKENS, tmp_path / "bag.onnx")
    path.with_name("bag.network.json").write_text("{}", encoding="utf-8")
    return path


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: f"{d.runtime}-{d.precision}")
def test_ids_are_run_as_they_are(deployment: Deployment, model: Path, tmp_path: Path) -> None:
    runtime = load_runtime(deployment.runtime)
    if deployment.runtime == "torch":
        runtime = TorchEager(load_network=lambda path: _Bag())
    ids = TOKENS.draw(np.random.default_rng(0), 64)
    session = runtime.load(runtime.prepare(model, deployment.precision, tmp_path / "out", ids), deployment)
    assert (session.input, session.batch) == (TOKENS, 1)
    outputs = session.run(ids)
    with torch.inference_mode():
        expected = _Bag().eval()(torch.from_numpy(ids)).numpy()
    assert outputs.dtype == np.float32
    assert np.corrcoef(outputs.ravel(), expected.ravel())[0, 1] > (0.99 if deployment.precision == "int8" else 0.999999)
    assert np.isfinite(session.run(session.input.draw(np.random.default_rng(1), 4))).all()


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_streams_and_free_batches_take_ids(runtime: str, model: Path) -> None:
    free = export_onnx(_Bag().eval(), TOKENS, model.with_name("four.onnx"), batch=4)
    session = load_streams(load_runtime(runtime), free, Deployment(runtime, "fp32", 1, batch=4), 1)
    assert (session.input, session.batch) == (TOKENS, 4)
    assert session.run(TOKENS.draw(np.random.default_rng(0), 4)).shape == (4, 3)


def test_a_network_of_ids_is_measured(model: Path) -> None:
    """The worker draws ids below the number that the file names: others would end the embedding's look-up."""
    requests = [MeasureRequest(model, Deployment(runtime, "fp32", 1)) for runtime in ("onnxruntime", "openvino")]
    for result in measure(requests, sessions=1, seconds_per_model=0.02, repeat_s=0):
        assert result.failed is None
        assert result.p50_ms > 0


def test_calibration_has_a_type_that_networks_take(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="int32"):
        load_runtime("onnxruntime").prepare(model, "int8", tmp_path, np.zeros((4, 16), np.int32))
