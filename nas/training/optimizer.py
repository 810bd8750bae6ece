"""The one place where optimisers are made, their state as tensors, and the clipping that goes before their steps."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from nas.files.tensors import Tensors
from nas.training.batch_norm import BATCH_NORMS
from nas.training.muon import Muon
from nas.training.precision import Precision
from nas.training.recipe import OptimizerSettings

_FUSED = ("sgd", "momentum", "adam", "adamw")
"""Those that torch has in one pass over the weights instead of one per operation."""


def make_optimizer(
    network: nn.Module,
    settings: OptimizerSettings,
    lr: float,
    *,
    precision: Precision = "bf16",
    may_skip_steps: bool = False,
) -> torch.optim.Optimizer:
    """timm's optimiser of that name or `Muon`, without weight decay on norms and biases (tensors of one dimension).

    Args:
        network: whose trainable parameters are optimised.
        settings: name, momentum, weight decay, and the rates that some of the tensors have for themselves.
        lr: the largest rate, scaled to the batch already.
        precision: of the training: `Muon` multiplies its matrices in fp32 where a CPU trains in it.
        may_skip_steps: whether a gradient scaler may skip the first step. torch's fused sgd would then go on from a
            momentum that nobody has set (torch 2.15), so that no fused form is taken.
    """
    if settings.name == "muon":
        optimizer: torch.optim.Optimizer = Muon(
            _groups(network, settings, lr),
            lr=lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            # A CPU that trains faster in fp32 multiplies matrices faster in fp32 as well.
            products=torch.float32 if precision == "fp32" and _is_on_cpu(network) else torch.bfloat16,
        )
    else:
        from timm.optim._optim_factory import create_optimizer_v2  # with all of timm and torchvision: seconds

        # timm's name for sgd without Nesterov, which needs a momentum.
        name = "momentum" if settings.name == "sgd" and not settings.momentum else settings.name
        fused = settings.fused and not may_skip_steps and name in _FUSED
        options: dict[str, Any] = {"fused": True} if fused else {}
        optimizer = create_optimizer_v2(
            network if settings.norm_rate == 1 else _groups(network, settings, lr),
            opt=name,
            lr=lr,
            weight_decay=settings.weight_decay,
            momentum=settings.momentum,
            **options,
        )
    set_rate(optimizer, lr)
    return optimizer


def _is_on_cpu(network: nn.Module) -> bool:
    return all(parameter.device.type == "cpu" for parameter in network.parameters())


def _groups(network: nn.Module, settings: OptimizerSettings, lr: float) -> list[dict[str, Any]]:
    """The trainable parameters by what is done with them; `rate_factor` is a group's rate by `lr`."""
    norms: dict[int, nn.Parameter] = {}
    filters: dict[int, tuple[torch.Tensor, int]] = {}
    for module in network.modules():
        if isinstance(module, BATCH_NORMS):
            norms |= {id(p): p for p in module.parameters() if p.requires_grad}
        elif settings.name == "muon" and isinstance(module, nn.Conv2d) and module.bias is None:
            # A norm comes next, so that the size of the weights is free. It is not where there is a bias.
            filters[id(module.weight)] = module.weight, module.groups
    rest = [p for p in network.parameters() if p.requires_grad and id(p) not in norms and id(p) not in filters]
    # Steps of one length: what several of them sum up to grows with the root of the batch, as their noise falls.
    turn_lr = settings.turn_lr * math.sqrt(lr / settings.lr)
    turned = {"orthogonal": True, "momentum": settings.turn_momentum, "rate_factor": turn_lr / lr}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if p.ndim > 1]},
        {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
        {"params": list(norms.values()), "weight_decay": 0.0, "rate_factor": settings.norm_rate},
    ]
    for parts in sorted({parts for weight, parts in filters.values() if weight.requires_grad}):
        same = [weight for weight, own in filters.values() if own == parts and weight.requires_grad]
        groups.append({"params": same, "parts": parts, **turned})
    return [group for group in groups if group["params"]]


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The learning rate of the next step; groups with a rate of their own keep its ratio to the others'."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("rate_factor", 1.0)


def clip_gradients(parameters: Iterable[nn.Parameter], largest_norm: float) -> float | torch.Tensor:
    """Scale all gradients down so that their norm together is at most `largest_norm`, as `clip_grad_norm_` does.

    With one call for all tensors instead of one for each; and on a CPU, where looking at the norm is free, what needs
    no clipping is left alone. Returns the norm before, a scalar tensor on the gradients' device (0 without any).
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return 0.0
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    factor = largest_norm / (norm + 1e-6)
    if factor.device.type != "cpu" or not float(factor) >= 1:  # also where it is no number: a divergence must be seen
        torch._foreach_mul_(gradients, factor.clamp(max=1.0))
    return norm


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
