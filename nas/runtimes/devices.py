"""The devices of this host that networks can run and be trained on, and how ONNX Runtime is told to use them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from nas.deployment import CPU, cuda_index
from nas.errors import UserError

ALLOWED = "give cpu or a GPU by its number, such as cuda:0"


class Cuda(Protocol):
    """Questions to the driver and to the CUDA side of PyTorch; a fake one stands in for both in tests."""

    def driver_present(self) -> bool:
        """True if this host has an NVIDIA driver."""
        ...

    def built_with_cuda(self) -> str | None:
        """The CUDA version that this PyTorch was built for; None for a build without CUDA."""
        ...

    def device_count(self) -> int:
        """GPUs that PyTorch can use; 0 also where the driver does not answer."""
        ...

    def has_bf16(self, index: int) -> bool:
        """True if that GPU computes in bf16; older ones emulate it, slower than fp32."""
        ...


class TorchCuda:
    """This host's driver, and the installed PyTorch, which is imported when it is asked."""

    def driver_present(self) -> bool:
        return nvidia_device_present()

    def built_with_cuda(self) -> str | None:
        import torch

        return torch.version.cuda

    def device_count(self) -> int:
        import torch

        return torch.cuda.device_count()

    def has_bf16(self, index: int) -> bool:
        import torch

        return torch.cuda.get_device_capability(index) >= _FIRST_WITH_BF16


_FIRST_WITH_BF16 = (8, 0)
"""Compute capability (major, minor) of the first GPUs with bf16 arithmetic."""


def nvidia_device_present() -> bool:
    """True if an NVIDIA driver has made its device node: tells a GPU host apart without importing torch."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def parse_device(text: str) -> str:
    """The device that a person named: `cpu`, `cuda:1`, or `cuda` for the first GPU.

    Raises `UserError` for anything else. Whether this host has it is another question, see `why_no_device`.
    """
    name = "cuda:0" if text == "cuda" else text
    if name != CPU and cuda_index(name) is None:
        raise UserError(f"{text!r} is no device", ALLOWED)
    return name


def why_no_device(device: str, cuda: Cuda | None = None) -> str | None:
    """Reason why this host cannot use `device`, `cpu` or `cuda:N` (a sentence for people), or None where it can.

    `cuda` is asked; by default this host's driver and the installed PyTorch.
    """
    index = cuda_index(device)
    if index is None:
        return None
    asked = cuda or TorchCuda()
    if not asked.driver_present():
        return f"{device} needs an NVIDIA driver, and this host has none"
    if asked.built_with_cuda() is None:
        return f"{device} needs a PyTorch with CUDA, and the installed one was built without"
    count = asked.device_count()
    if count == 0:
        return f"{device} cannot be used: the NVIDIA driver of this host shows PyTorch no GPU"
    if index >= count:
        last = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0 alone"
        return f"{device} does not exist: this host has {last}"
    return None


def require_device(device: str) -> None:
    """Raises `UserError` where this host cannot use `device`."""
    reason = why_no_device(device)
    if reason is not None:
        raise UserError(reason, "leave out --device for the CPU, or run this where `nvidia-smi` lists that GPU")


Provider = str | tuple[str, dict[str, Any]]


def execution_providers(device: str, available: Sequence[str] | None = None, precision: str = "fp32") -> list[Provider]:
    """ONNX Runtime's execution providers for a device, the first that can run an operator wins.

    Args:
        device: `cpu` or `cuda:N`.
        available: names of the providers in the installed ONNX Runtime; None: all there are, for a session elsewhere.
        precision: the deployment's; fp32 is computed as such, not in TF32.
    """
    index = cuda_index(device)
    if index is None:
        return ["CPUExecutionProvider"]
    wanted: list[Provider] = [
        ("TensorrtExecutionProvider", {"device_id": index, "trt_fp16_enable": precision == "fp16"}),
        ("CUDAExecutionProvider", {"device_id": index, "use_tf32": 0 if precision == "fp32" else 1}),
        "CPUExecutionProvider",
    ]
    return [p for p in wanted if available is None or (p if isinstance(p, str) else p[0]) in available]


def why_no_provider(device: str, available: Sequence[str]) -> str | None:
    """Reason why an ONNX Runtime with these providers cannot use `device` (a sentence part), or None where it can."""
    if cuda_index(device) is None or "CUDAExecutionProvider" in available:
        return None
    return (
        "the installed ONNX Runtime has no CUDA provider: the package `onnxruntime` is the CPU's, "
        "`onnxruntime-gpu` in its place has it"
    )
