"""Tensors and their story in one safetensors file that appears whole or not at all; nothing is unpickled.

The story (JSON) and a checksum of the tensors lie in the file's header, so that both are of the same moment.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from nas.errors import UserError
from nas.export.checkpoint import is_pickle

Tensors = dict[str, torch.Tensor]


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], story: Mapping[str, Any]) -> None:
    """Replace `path`; the old file survives whatever goes wrong.

    Raises:
        UserError: it cannot be written (a full disk).
    """
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = save(plain, {"story": json.dumps(story), "sha256": _checksum(plain)})
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"cannot save '{path}': {error.strerror}",
            "make room, then run the same command again: it goes on from the last checkpoint, which is whole",
        ) from error


def load_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """The tensors (on the CPU) and their story; an empty story for files of others.

    Raises:
        UserError: no such file, a pickle, a truncated or a changed file.
    """
    if not path.is_file():
        raise UserError(f"there are no weights at '{path}'", "give a safetensors file")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        if is_pickle(path):
            raise UserError(
                f"'{path}' is a pickle, which may run any code and is never loaded",
                "save its tensors with safetensors.torch.save_file",
            ) from error
        raise UserError(f"'{path}' is no whole safetensors file: {error}", "get it again, or remove it") from error
    if "sha256" in metadata and metadata["sha256"] != _checksum(tensors):
        raise UserError(f"'{path}' was changed after it was written", "get it again, or remove it")
    story: dict[str, Any] = json.loads(metadata.get("story", "{}"))
    return tensors, story


def prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """`prefix.name` for each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """What `prefixed` gave."""
    return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """The state of an optimiser, without its settings, as `NUMBER.NAME`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": value if isinstance(value, torch.Tensor) else torch.tensor(value)
        for number, entries in state.items()
        for name, value in entries.items()
        if value is not None
    }


GroupNumbers = dict[str, float | list[float]]
"""Settings of an optimiser's group; a tensor of no dimension is a list of one."""


def group_numbers(optimizer: torch.optim.Optimizer) -> list[GroupNumbers]:
    """The numbers of an optimiser's groups: some count their steps there."""
    return [{k: number for k, v in g.items() if (number := _number(v)) is not None} for g in optimizer.param_groups]


def _number(value: object) -> float | list[float] | None:
    if isinstance(value, torch.Tensor):
        return [float(value)] if value.ndim == 0 else None
    return value if isinstance(value, int | float) else None


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], numbers: list[GroupNumbers]
) -> None:
    """Undo `optimizer_tensors` and `group_numbers`."""
    for group, saved in zip(optimizer.param_groups, numbers, strict=True):
        group.update({k: torch.tensor(v[0]) if isinstance(v, list) else v for k, v in saved.items()})
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        parameter = parameters[int(number)]
        if tensor.shape == parameter.shape:
            # In the parameter's memory layout: sums over it would be rounded differently in another one.
            tensor = torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
