"""What moves a supernet's weights, and its state by the weights' names."""

import torch
from torch import Tensor, nn

from nas.evaluation.supernet.config import SupernetConfig
from nas.training.optim import make_sgd


def make_optimizer(model: nn.Module, config: SupernetConfig) -> torch.optim.Optimizer:
    """As `config` says, without weight decay on norms and biases (tensors of at most one dimension)."""
    sgd = make_sgd(model, config.lr, config.momentum, config.weight_decay)
    if config.optimizer == "sgd":
        return sgd
    groups = [{"params": group["params"], "weight_decay": group["weight_decay"]} for group in sgd.param_groups]
    return torch.optim.AdamW(groups, lr=config.lr)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that the optimiser remembers, as `entry:weight` -> tensor."""
    return {
        f"{entry}:{name}": tensor
        for name, parameter in model.named_parameters()
        for entry, tensor in optimizer.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        entry, _, name = key.partition(":")
        parameter = parameters[name]
        # counts of steps stay where the optimiser keeps them
        value = tensor if entry == "step" else tensor.to(parameter.device)
        optimizer.state.setdefault(parameter, {})[entry] = value
