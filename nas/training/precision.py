"""The device and the number format that networks are trained and validated in."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["fp32", "bf16", "fp16"]
"""Number format of forward and backward passes. fp16 needs scaled losses, which the loop takes care of."""


def resolve_device(device: str) -> "torch.device":
    """`auto` is the GPU where there is one, else the CPU."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def autocast(device: "torch.device", precision: Precision) -> AbstractContextManager[object]:
    """Context in which the forward pass runs; does nothing for fp32."""
    import torch

    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=precision != "fp32")
