"""Eager PyTorch on the CPU in fp32 and bf16, or on a GPU, there also in fp16 and replayed as a CUDA graph.

Its file is the pair `<stem>.network.json` + `<stem>.safetensors` beside `<stem>.onnx`; the input is read
from the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nas.deployment import CPU, Deployment, cuda_index
from nas.errors import UserError
from nas.runtimes.base import (
    GPU_ONLY,
    FloatPart,
    Inputs,
    Outputs,
    Session,
    check_input,
    check_precision,
    check_supported,
    missing_modules,
    require,
    run_in_batches,
)
from nas.runtimes.cpu import cpu_flags, has_bf16
from nas.runtimes.devices import Cuda, TorchCuda, why_no_device
from nas.runtimes.onnx_file import read_input
from nas.runtimes.torch_graph import CudaGraphDevice, GraphDevice, graph_session, recorded
from search_spaces.signature import TensorSpec

if TYPE_CHECKING:
    import torch
    from torch import nn

NETWORK_SUFFIX = ".network.json"
LoadNetwork = Callable[[Path], "nn.Module"]


class EagerSession:
    """Runs the modules one after the other; see `nas.runtimes.base.Session`."""

    def __init__(self, network: nn.Module, dtype: torch.dtype, input: TensorSpec, batch: int) -> None:
        self._network = network
        self._dtype = dtype
        self.input, self.batch = input, batch

    def run(self, inputs: Inputs) -> Outputs:
        return run_in_batches(self._call, inputs, self.batch)

    def _call(self, inputs: Inputs) -> Outputs:
        import torch

        with torch.inference_mode():
            given = torch.from_numpy(inputs)
            output = self._network(given.to(self._dtype) if given.is_floating_point() else given)
            logits: Outputs = output.float().numpy()
        return logits


class TorchEager:
    """See `nas.runtimes.base.Runtime`.

    Args:
        load_network: reads a `.network.json` and its weights into a network in evaluation mode.
        graphs: makes what records networks on a CUDA device of that name.
        cuda: who is asked for GPUs.
    """

    name = "torch"
    precisions = ("fp32", "bf16", "fp16")

    def __init__(
        self,
        load_network: LoadNetwork | None = None,
        graphs: Callable[[str], GraphDevice] = CudaGraphDevice,
        cuda: Cuda | None = None,
    ) -> None:
        self._load_network = load_network
        self._graphs = graphs
        self._cuda = cuda or TorchCuda()

    def missing(self) -> str | None:
        return missing_modules(("torch",), "pip install torch")

    def unsupported(self, precision: str, device: str = CPU) -> str | None:
        check_precision(self, precision)
        index = cuda_index(device)
        if index is None:
            if precision == "fp16":
                return GPU_ONLY
            emulated = precision == "bf16" and not has_bf16(cpu_flags())
            return "its processor has no bf16 arithmetic" if emulated else None
        reason = why_no_device(device, self._cuda)
        if reason is None and precision == "bf16" and not self._cuda.has_bf16(index):
            return "that GPU has no bf16 arithmetic"
        return reason

    def prepare(
        self,
        model: Path,
        precision: str,
        out_dir: Path,
        calibration: Inputs | None,
        *,
        float_part: FloatPart | None = None,
        isa: Collection[str] | None = None,
    ) -> Path:
        check_precision(self, precision)
        require(self)
        network_file = model.with_name(model.stem + NETWORK_SUFFIX)
        if not network_file.is_file():
            raise UserError(f"{network_file} does not exist", "export the network with its PyTorch weights")
        return network_file

    def load(self, path: Path, deployment: Deployment) -> Session:
        require(self)
        check_supported(self, deployment.precision, deployment.device)
        import torch

        spec = _input_of(path, deployment)
        load_network = self._load_network or _default_loader()
        dtype = dtype_of(deployment)
        network = load_network(path).eval()
        if deployment.device == CPU:
            torch.set_num_threads(deployment.threads)
            return EagerSession(network.to(dtype=dtype), dtype, spec, deployment.batch)
        graphs = self._graphs(deployment.device)
        return recorded(lambda: graph_session(network, dtype, spec, deployment.batch, graphs), path.name, deployment)


def dtype_of(deployment: Deployment) -> torch.dtype:
    """The type that a deployment of PyTorch computes in."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[deployment.precision]


def _default_loader() -> LoadNetwork:
    from nas.networks.description import load_network

    return load_network


def _input_of(path: Path, deployment: Deployment) -> TensorSpec:
    """Input that the network was exported with; the batch of that file does not bind PyTorch."""
    exported = path.with_name(path.name.removesuffix(NETWORK_SUFFIX) + ".onnx")
    declared = read_input(exported)
    return check_input(exported, replace(declared, shape=(None, *declared.shape[1:])), deployment)
