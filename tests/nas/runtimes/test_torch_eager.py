from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.deployment import Deployment
from nas.errors import UserError
from nas.runtimes.torch_eager import EagerSession, GraphSession, TorchEager
from tests.nas.fake_cuda import FakeCuda
from tests.nas.tiny import CLASSES, calibration_images, write_tiny_network
from tests.nas.tiny_torch import load_tiny_network


class RecordingDevice:
    """Behaves like a CUDA graph, on the CPU: a replay computes from the same input into the same output tensor."""

    tensors_on = "cpu"

    def __init__(self) -> None:
        self.captures = 0
        self.replays = 0
        self.synchronised = 0

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        self.captures += 1
        output = call()

        def replay() -> None:
            self.replays += 1
            with torch.inference_mode():
                output.copy_(call())

        return replay, output

    def synchronize(self) -> None:
        self.synchronised += 1


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    model = write_tiny_network(tmp_path / "tiny.onnx")
    model.with_name("tiny.network.json").write_text("{}", encoding="utf-8")
    return TorchEager().prepare(model, "fp32", tmp_path, None)


def test_graph_session_replays_one_recording(network_file: Path) -> None:
    device = RecordingDevice()
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: device, cuda=FakeCuda())
    session = runtime.load(network_file, Deployment("torch", "fp32", 1, batch=2, device="cuda:0"))
    assert isinstance(session, GraphSession)
    eager = TorchEager(load_network=load_tiny_network).load(network_file, Deployment("torch", "fp32", 1, batch=2))
    assert isinstance(eager, EagerSession)
    images = calibration_images(5)
    np.testing.assert_allclose(session.run(images), eager.run(images), rtol=1e-5, atol=1e-6)
    assert (device.captures, device.replays, device.synchronised) == (1, 3, 3)


def test_graph_session_returns_its_own_copy(network_file: Path) -> None:
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: RecordingDevice(), cuda=FakeCuda())
    session = runtime.load(network_file, Deployment("torch", "fp32", 1, device="cuda:0"))
    first, second = calibration_images(2)
    output = session.run(first[None])
    kept = output.copy()
    assert not np.array_equal(session.run(second[None]), kept)
    np.testing.assert_array_equal(output, kept)


def test_weights_must_lie_beside_the_onnx_file(tmp_path: Path) -> None:
    model = write_tiny_network(tmp_path / "alone.onnx")
    with pytest.raises(UserError, match=r"alone\.network\.json"):
        TorchEager().prepare(model, "fp32", tmp_path, None)
    orphan = tmp_path / "orphan.network.json"
    orphan.write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"orphan\.onnx"):
        TorchEager(load_network=load_tiny_network).load(orphan, Deployment("torch", "fp32", 1))


def test_torch_runs_on_the_processor_unless_a_gpu_is_named(network_file: Path) -> None:
    """Also on a host with a GPU: one profile can hold both."""
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: RecordingDevice(), cuda=FakeCuda())
    assert isinstance(runtime.load(network_file, Deployment("torch", "fp32", 1)), EagerSession)


def test_precisions_of_a_gpu() -> None:
    runtime = TorchEager(cuda=FakeCuda(gpus=2, bf16=False))
    assert [p for p in runtime.precisions if runtime.unsupported(p, "cuda:1") is None] == ["fp32", "fp16"]
    assert "bf16" in str(runtime.unsupported("bf16", "cuda:1"))
    assert "cuda:2 does not exist" in str(runtime.unsupported("fp32", "cuda:2"))
    assert "for GPUs" in str(runtime.unsupported("fp16"))


def test_half_precision_is_computed_in_half(network_file: Path) -> None:
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: RecordingDevice(), cuda=FakeCuda())
    images = calibration_images(3)
    exact, half = (
        runtime.load(network_file, Deployment("torch", p, 1, device="cuda:0")).run(images) for p in ("fp32", "fp16")
    )
    assert half.dtype == np.float32
    assert 1e-5 < np.abs(half - exact).max() / np.abs(exact).max() < 1e-2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_cuda_graph_agrees_with_the_processor(network_file: Path, precision: str) -> None:
    images = calibration_images(5)
    here = TorchEager(load_network=load_tiny_network).load(network_file, Deployment("torch", "fp32", 1))
    there = TorchEager(load_network=load_tiny_network).load(
        network_file, Deployment("torch", precision, 1, batch=2, device="cuda:0")
    )
    outputs = there.run(images)
    assert outputs.shape == (5, CLASSES)
    assert np.corrcoef(outputs.ravel(), here.run(images).ravel())[0, 1] > 0.999
