"""Optimiser groups, learning-rate schedule and weight averaging."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from nas.training.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that `config` names, without weight decay on norms and biases."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(_groups(model, config.weight_decay), lr=config.lr)
    return make_sgd(model, config.lr, config.momentum, config.weight_decay)


def make_sgd(model: nn.Module, lr: float, momentum: float, weight_decay: float) -> torch.optim.SGD:
    """SGD with Nesterov momentum, without weight decay on norms and biases (tensors of at most one dimension)."""
    return torch.optim.SGD(_groups(model, weight_decay), lr=lr, momentum=momentum, nesterov=momentum > 0)


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def clip_gradients(parameters: Iterable[nn.Parameter], largest_norm: float) -> None:
    """Scale all gradients down so that their norm together is at most `largest_norm`, as `clip_grad_norm_` does.

    With one call for all tensors instead of one for each; and on a CPU, where looking at the norm is free, what needs
    no clipping is left alone.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    factor = largest_norm / (torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) + 1e-6)
    if factor.device.type != "cpu" or not float(factor) >= 1:  # also where it is no number: a divergence must be seen
        torch._foreach_mul_(gradients, factor.clamp(max=1.0))


def lr_factor(progress: float, warmup_fraction: float) -> float:
    """Share of the peak learning rate at `progress` in [0, 1]: linear warm-up, then cosine to 0 (Loshchilov 2017)."""
    if progress < warmup_fraction:
        # Not from zero: the first step would be wasted.
        return 0.05 + 0.95 * progress / warmup_fraction
    decay = (progress - warmup_fraction) / (1 - warmup_fraction)
    return 0.5 * (1 + math.cos(math.pi * min(decay, 1.0)))


class WeightAverage:
    """Exponential moving average of a model's floating-point state (weights and batch-norm statistics)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._updates = 0
        self._average = [tensor.clone() for tensor in self._state()]

    def _state(self) -> list[torch.Tensor]:
        return [t for t in self._model.state_dict().values() if t.is_floating_point()]

    def update(self) -> None:
        """Take in the model's present state."""
        self._updates += 1
        # The decay rises from 0.18 on, so that the random first weights are forgotten in short trainings.
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        torch._foreach_lerp_(self._average, self._state(), 1 - decay)

    def swap(self) -> None:
        """Exchange the model's state and the average; a second call undoes it."""
        for mine, theirs in zip(self._average, self._state(), strict=True):
            kept = theirs.clone()
            theirs.copy_(mine)
            mine.copy_(kept)
