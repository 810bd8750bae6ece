"""Eager PyTorch, fp32 and bf16, on the CPU or on a GPU (there replayed as a CUDA graph).

Its file is the pair `<stem>.network.json` + `<stem>.safetensors` beside `<stem>.onnx`; the shape of the input is read
from the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nas.deployment import Deployment
from nas.errors import UserError
from nas.runtimes.base import (
    FloatPart,
    Images,
    Logits,
    Session,
    check_input_shape,
    check_precision,
    check_supported,
    missing_modules,
    require,
    run_in_batches,
)
from nas.runtimes.cpu import cpu_flags, has_bf16
from nas.runtimes.onnx_file import read_input

if TYPE_CHECKING:
    import torch
    from torch import nn

NETWORK_SUFFIX = ".network.json"
LoadNetwork = Callable[[Path], "nn.Module"]


class GraphDevice(Protocol):
    """What a CUDA graph needs of its device; a fake one lets the session be tested without a GPU."""

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Record `call` once; returns what replays it, and the tensor each replay writes to."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        ...


class CudaGraphDevice:
    """The current CUDA device."""

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        import torch

        # Libraries choose algorithms and allocate on their first calls, which must not happen during a capture:
        # a few calls on a side stream, as https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs asks.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = call()
        return graph.replay, output

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()


class EagerSession:
    """Runs the modules one after the other; see `nas.runtimes.base.Session`."""

    def __init__(self, network: nn.Module, dtype: torch.dtype, input_shape: tuple[int, int, int, int]) -> None:
        self._network = network
        self._dtype = dtype
        self.input_shape = input_shape

    def run(self, images: Images) -> Logits:
        return run_in_batches(self._call, images, self.input_shape)

    def _call(self, images: Images) -> Logits:
        import torch

        with torch.inference_mode():
            output = self._network(torch.from_numpy(images).to(self._dtype))
            logits: Logits = output.float().numpy()
        return logits


class GraphSession:
    """Replays one recorded call; see `nas.runtimes.base.Session`.

    A call is timed with its copies to and from the device: images start and results end in the host's memory.
    """

    def __init__(
        self, network: nn.Module, dtype: torch.dtype, input_shape: tuple[int, int, int, int], device: str,
        graphs: GraphDevice,
    ) -> None:  # fmt: skip
        import torch

        self.input_shape = input_shape
        self._graphs = graphs
        self._input = torch.zeros(input_shape, dtype=dtype, device=device)
        with torch.inference_mode():
            self._replay, self._output = graphs.capture(lambda: network(self._input))

    def run(self, images: Images) -> Logits:
        return run_in_batches(self._call, images, self.input_shape)

    def _call(self, images: Images) -> Logits:
        import torch

        with torch.inference_mode():
            self._input.copy_(torch.from_numpy(images))
            self._replay()
            self._graphs.synchronize()
            # A copy, because the next replay overwrites the recorded output.
            logits: Logits = self._output.float().cpu().numpy().copy()
        return logits


class TorchEager:
    """See `nas.runtimes.base.Runtime`.

    Args:
        load_network: reads a `.network.json` and its weights into a network in evaluation mode.
        device: `cpu`, `cuda`, or None for a GPU where there is one.
        graphs: how a network is recorded on a device other than the CPU.
    """

    name = "torch"
    precisions = ("fp32", "bf16")

    def __init__(
        self,
        load_network: LoadNetwork | None = None,
        device: str | None = None,
        graphs: GraphDevice | None = None,
    ) -> None:
        self._load_network = load_network
        self._device = device
        self._graphs = graphs

    def missing(self) -> str | None:
        return missing_modules(("torch",), "pip install torch")

    def unsupported(self, precision: str) -> str | None:
        check_precision(self, precision)
        if precision == "bf16" and self._resolved_device() == "cpu" and not has_bf16(cpu_flags()):
            return "its processor has no bf16 arithmetic"
        return None

    def prepare(
        self,
        model: Path,
        precision: str,
        out_dir: Path,
        calibration: Images | None,
        *,
        float_part: FloatPart | None = None,
    ) -> Path:
        check_precision(self, precision)
        require(self)
        network_file = model.with_name(model.stem + NETWORK_SUFFIX)
        if not network_file.is_file():
            raise UserError(f"{network_file} does not exist", "export the network with its PyTorch weights")
        return network_file

    def load(self, path: Path, deployment: Deployment) -> Session:
        require(self)
        check_supported(self, deployment.precision)
        import torch

        shape = _input_shape(path, deployment)
        load_network = self._load_network or _default_loader()
        device = self._resolved_device()
        dtype = torch.bfloat16 if deployment.precision == "bf16" else torch.float32
        network = load_network(path).eval().to(device=device, dtype=dtype)
        if device == "cpu" and self._graphs is None:
            torch.set_num_threads(deployment.threads)
            return EagerSession(network, dtype, shape)
        return GraphSession(network, dtype, shape, device, self._graphs or CudaGraphDevice())

    def _resolved_device(self) -> str:
        if self._device is not None:
            return self._device
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"


def _default_loader() -> LoadNetwork:
    from nas.networks.description import load_network

    return load_network


def _input_shape(path: Path, deployment: Deployment) -> tuple[int, int, int, int]:
    """The shape the network was exported with; its batch does not bind PyTorch and is the deployment's."""
    exported = path.with_name(path.name.removesuffix(NETWORK_SUFFIX) + ".onnx")
    return check_input_shape(exported, [None, *read_input(exported).shape[1:]], deployment)
