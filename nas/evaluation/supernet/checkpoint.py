"""A supernet's training on disk: one safetensors file with weights and the optimiser's state; what they belong to
as JSON in its header. It appears whole or not at all, and nothing is unpickled."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nas.errors import UserError
from nas.evaluation.supernet.config import SupernetConfig, SupernetLog
from nas.evaluation.supernet.network import Supernet
from nas.files.writing import staged_file
from nas.training.optimizer import GroupNumbers, group_numbers, optimizer_tensors, restore_optimizer

_WEIGHTS, _OPTIMIZER = "weights:", "optimizer:"


def save_supernet(
    path: Path, supernet: Supernet, optimizer: torch.optim.Optimizer | None, config: SupernetConfig, log: SupernetLog
) -> None:
    """Write everything that the next step depends on."""
    from safetensors.torch import save_file

    tensors = {f"{_WEIGHTS}{name}": tensor for name, tensor in supernet.state_dict().items()}
    if optimizer is not None:
        state = optimizer_tensors(optimizer)
        tensors |= {f"{_OPTIMIZER}{key}": tensor for key, tensor in state.items()}
    numbers = group_numbers(optimizer) if optimizer is not None else []
    document = {**identity(supernet, config), "log": log.to_json(), "optimizer": numbers}
    header = {"supernet": json.dumps(document, allow_nan=False)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with staged_file(path) as staged:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, str(staged), metadata=header)


def load_supernet(
    path: Path, supernet: Supernet, optimizer: torch.optim.Optimizer | None, config: SupernetConfig
) -> SupernetLog:
    """Put the saved state into `supernet` (and `optimizer`) and return how far it had come.

    Raises `UserError` where the file is no whole checkpoint, or one of another space or another training.
    """
    log, numbers, tensors = _read(path, identity(supernet, config))
    supernet.load_state_dict({k.removeprefix(_WEIGHTS): v for k, v in tensors.items() if k.startswith(_WEIGHTS)})
    if optimizer is not None:
        state = {k.removeprefix(_OPTIMIZER): v for k, v in tensors.items() if k.startswith(_OPTIMIZER)}
        restore_optimizer(optimizer, state, numbers)
    return log


def identity(supernet: Supernet, config: SupernetConfig) -> dict[str, Any]:
    """The settings that must be the same in a checkpoint and in the training that goes on from it."""
    space = supernet.space
    allowed = {d.name: [d.options[i] for i in a] for d, a in zip(space.decisions, space.allowed, strict=True)}
    return {"space": space.name, "allowed": allowed, "size": list(supernet.size), "config": config.to_json()}


def _read(path: Path, expected: dict[str, Any]) -> tuple[SupernetLog, list[GroupNumbers], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    hint = "train the supernet in another file, or remove this one"
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get("supernet")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
    except (SafetensorError, OSError) as error:
        raise UserError(f"'{path}' cannot be read as a checkpoint: {error}", hint) from error
    if header is None:
        raise UserError(f"'{path}' is no checkpoint of a supernet", hint)
    document = json.loads(header)
    log = SupernetLog.from_json(document.pop("log"))
    for name, value in expected.items():
        if document.get(name) != value:
            raise UserError(f"'{path}' is of another training: its {name} differs", hint)
    return log, document.get("optimizer", []), tensors
