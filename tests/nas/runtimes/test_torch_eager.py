import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nas.deployment import Deployment
from nas.errors import UserError
from nas.runtimes.torch_eager import EagerSession, TorchEager
from nas.runtimes.torch_graph import GraphSession, graph_session, layout_of
from search_spaces.signature import TensorSpec
from tests.nas.fake_cuda import FakeCuda
from tests.nas.measure.fake_gpu import FakeGpu, FakeGraphs
from tests.nas.tiny import CLASSES, calibration_images, write_tiny_network
from tests.nas.tiny_torch import load_tiny_network


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    model = write_tiny_network(tmp_path / "tiny.onnx")
    model.with_name("tiny.network.json").write_text("{}", encoding="utf-8")
    return TorchEager().prepare(model, "fp32", tmp_path, None)


def test_graph_session_replays_one_recording(network_file: Path) -> None:
    gpu = FakeGpu()
    device = FakeGraphs(gpu)
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: device, cuda=FakeCuda())
    session = runtime.load(network_file, Deployment("torch", "fp32", 1, batch=2, device="cuda:0"))
    assert isinstance(session, GraphSession)
    eager = TorchEager(load_network=load_tiny_network).load(network_file, Deployment("torch", "fp32", 1, batch=2))
    assert isinstance(eager, EagerSession)
    images = calibration_images(5)
    np.testing.assert_allclose(session.run(images), eager.run(images), rtol=1e-5, atol=1e-6)
    assert device.captured == ["torch.float32"]
    assert gpu.log == ["upload", "replay", "download", "synchronise"] * 3, "one wait for each call, at its end"


def test_graph_session_returns_its_own_copy(network_file: Path) -> None:
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: FakeGraphs(FakeGpu()), cuda=FakeCuda())
    session = runtime.load(network_file, Deployment("torch", "fp32", 1, device="cuda:0"))
    first, second = calibration_images(2)
    output = session.run(first[None])
    kept = output.copy()
    assert not np.array_equal(session.run(second[None]), kept)
    np.testing.assert_array_equal(output, kept)


class _OnlyAddresses(FakeGraphs):
    """Keeps nothing of what was recorded but where it writes, as a CUDA graph does."""

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        output = call()
        return lambda: None, output


def test_graph_session_holds_the_weights_that_its_recording_reads() -> None:
    """Else their memory is given to the next network, and replays compute with what lies there then."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    weight = weakref.ref(network[1].weight)
    session = graph_session(network, torch.float32, TensorSpec((3, 2, 2)), 1, _OnlyAddresses(FakeGpu()))
    del network
    gc.collect()
    assert weight() is not None
    del session
    gc.collect()
    assert weight() is None


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
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: FakeGraphs(FakeGpu()), cuda=FakeCuda())
    assert isinstance(runtime.load(network_file, Deployment("torch", "fp32", 1)), EagerSession)


def test_precisions_of_a_gpu() -> None:
    runtime = TorchEager(cuda=FakeCuda(gpus=2, bf16=False))
    assert [p for p in runtime.precisions if runtime.unsupported(p, "cuda:1") is None] == ["fp32", "fp16"]
    assert "bf16" in str(runtime.unsupported("bf16", "cuda:1"))
    assert "cuda:2 does not exist" in str(runtime.unsupported("fp32", "cuda:2"))
    assert "for GPUs" in str(runtime.unsupported("fp16"))


def test_half_precision_is_computed_in_half(network_file: Path) -> None:
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: FakeGraphs(FakeGpu()), cuda=FakeCuda())
    images = calibration_images(3)
    exact, half = (
        runtime.load(network_file, Deployment("torch", p, 1, device="cuda:0")).run(images) for p in ("fp32", "fp16")
    )
    assert half.dtype == np.float32
    assert 1e-5 < np.abs(half - exact).max() / np.abs(exact).max() < 1e-2


def test_nothing_is_read_or_written_before_the_device_has_finished(network_file: Path) -> None:
    """The fake computes when it is waited for: a result read too soon would be that of the call before."""
    gpu = FakeGpu()
    network = load_tiny_network(network_file)
    session = graph_session(network, torch.float32, TensorSpec((3, 24, 24)), 1, FakeGraphs(gpu))
    first, second = calibration_images(2)
    expected = [network(torch.from_numpy(image[None])).detach().numpy() for image in (first, second)]
    session.begin(first[None])
    assert (gpu.log, gpu.most_launched) == (["upload", "replay", "download"], 3)
    np.testing.assert_allclose(session.end(), expected[0], rtol=1e-5, atol=1e-6)
    session.begin(second[None])
    np.testing.assert_allclose(session.end(), expected[1], rtol=1e-5, atol=1e-6)


class Told(torch.nn.Module):
    """Keeps how its inputs came."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen = images.dtype, images.is_contiguous(memory_format=torch.channels_last), images.shape
        return images.flatten(1)


@pytest.mark.parametrize(
    ("dtype", "channels_last"), [(torch.float16, True), (torch.bfloat16, True), (torch.float32, False)]
)
def test_images_lie_as_their_kernels_want_them(dtype: torch.dtype, channels_last: bool) -> None:
    network = Told()
    session = graph_session(network, dtype, TensorSpec((3, 4, 4)), 2, FakeGraphs(FakeGpu()))
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4), dtype=np.float32)
    np.testing.assert_allclose(session.run(images), images.reshape(2, -1), rtol=1e-2, atol=1e-2)
    assert network.seen == (dtype, channels_last, (2, 3, 4, 4))
    assert layout_of(dtype, 2) == torch.contiguous_format, "a table has no channels"


def test_bytes_are_uploaded_as_bytes() -> None:
    network = Told()
    session = graph_session(network, torch.float16, TensorSpec((4, 4, 3), "uint8", 256), 1, FakeGraphs(FakeGpu()))
    pixels = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 3), dtype=np.uint8)
    np.testing.assert_array_equal(session.run(pixels), pixels.reshape(1, -1))
    assert network.seen[0] == torch.uint8


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "batch 4 does not fit into the memory of cuda:0"),
        (RuntimeError("operation not permitted when stream is capturing\nmore"), "cannot be recorded as a CUDA graph"),
    ],
)
def test_what_a_gpu_refuses_is_a_sentence(network_file: Path, error: Exception, said: str) -> None:
    class Refusing(FakeGraphs):
        def capture(self, call: object) -> object:  # type: ignore[override]
            raise error

    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: Refusing(FakeGpu()), cuda=FakeCuda())
    with pytest.raises(UserError, match=said) as refused:
        runtime.load(network_file, Deployment("torch", "fp16", 1, batch=4, device="cuda:0"))
    assert "\n" not in str(refused.value)
    assert refused.value.hint


def test_other_errors_of_a_network_keep_their_traceback(network_file: Path) -> None:
    class Broken(FakeGraphs):
        def capture(self, call: object) -> object:  # type: ignore[override]
            raise RuntimeError("shapes do not match")

    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: Broken(FakeGpu()), cuda=FakeCuda())
    with pytest.raises(RuntimeError, match="shapes do not match"):
        runtime.load(network_file, Deployment("torch", "fp32", 1, device="cuda:0"))


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_is_not_touched_by_later_sessions(network_file: Path) -> None:
    runtime = TorchEager(load_network=load_tiny_network)
    images, deployment = calibration_images(4), Deployment("torch", "fp32", 1, batch=2, device="cuda:0")
    session = runtime.load(network_file, deployment)
    before = session.run(images)
    gc.collect()
    # Freed memory goes to tensors of the same size first: those of the weights, if nothing held them.
    filled = [torch.full((size,), float("nan"), device="cuda:0") for size in (16, 128, 512, 4096) for _ in range(500)]
    np.testing.assert_array_equal(session.run(images), before)
    del filled
    torch.cuda.empty_cache()
    others = [runtime.load(network_file, deployment) for _ in range(4)]
    np.testing.assert_array_equal(session.run(images), before)
    assert len(others) == 4, "alive until here"
