"""Which weights of a block are shared with which, and how a smaller block's are cut out of the largest one's."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from search_spaces.blocks import BlockFamily, BlockSpec
from search_spaces.modules import Residual

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockTensor:
    """A parameter or buffer of one block."""

    path: str
    """Name of the tensor within the block, as in its `state_dict`."""
    role: str
    """Purpose of the tensor, the same in all blocks of the family: tensors of two blocks share by it."""
    shape: Shape
    trained: bool
    """False for batch-norm statistics."""
    kind: str
    """`conv`, `linear`, `scale` (of a norm) or `offset`; for buffers the buffer's own name."""
    initial: tuple[float, float] | None = None
    """Mean and standard deviation of its first values, where the block has its own way."""


@lru_cache(maxsize=4096)
def block_tensors(family: BlockFamily, spec: BlockSpec) -> tuple[BlockTensor, ...]:
    """All tensors of one block of `family`, in the order of its `state_dict`. The input's size does not matter."""
    with torch.device("meta"):
        block = family.build(spec)
    initial = getattr(block, "initial", {})
    return tuple(replace(tensor, initial=initial.get(tensor.path)) for tensor in _walk(block, "", ""))


def cut(full: Tensor, shape: Shape) -> Tensor:
    """A view of `full`: the first channels in the first two dimensions, the centre of kernels in the last two."""
    for axis, size in enumerate(shape):
        start = (full.shape[axis] - size) // 2 if axis >= 2 else 0
        full = full.narrow(axis, start, size)
    return full


def _walk(module: nn.Module, path: str, role: str) -> Iterator[BlockTensor]:
    for name, tensor in module.named_parameters(recurse=False):
        yield BlockTensor(f"{path}{name}", f"{role}{name}", tuple(tensor.shape), True, _kind(module, name))
    for name, buffer in module.named_buffers(recurse=False):
        yield BlockTensor(f"{path}{name}", f"{role}{name}", tuple(buffer.shape), False, name)
    names = _role_names(module)
    for name, child in module.named_children():
        yield from _walk(child, f"{path}{name}.", f"{role}{names[name]}")


def _role_names(module: nn.Module) -> dict[str, str]:
    """Children's names as parts of a role.

    In a chain, a child is named by its class and its number among those of that class, so that an optional layer
    (squeeze-and-excitation) moves no other. A residual connection around a block does not rename what is in it.
    A grouped convolution is another operator than a dense one and has weights of its own.
    """
    names: dict[str, str] = {}
    seen: dict[str, int] = {}
    for name, child in module.named_children():
        if isinstance(module, Residual) and name == "body":
            names[name] = ""
            continue
        label = name
        if isinstance(module, nn.Sequential):
            label = type(child).__name__
            seen[label] = seen.get(label, -1) + 1
            label += str(seen[label])
        grouped = isinstance(child, nn.Conv2d) and 1 < child.groups < child.in_channels
        names[name] = f"{label}-grouped/" if grouped else f"{label}/"
    return names


def _kind(module: nn.Module, name: str) -> str:
    if name == "bias":
        return "offset"
    if isinstance(module, nn.Conv2d):
        return "conv"
    return "linear" if isinstance(module, nn.Linear) else "scale"
