"""The state of a training as tensors by name, and the numbers beside them."""

from collections.abc import Mapping

import torch

from nas.files.tensors import Tensors


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
