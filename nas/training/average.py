"""The moving average of a network's weights, without the cost of naming all of them at every step."""

from collections.abc import Sequence

import torch
from timm.utils.model_ema import ModelEmaV3
from torch import nn


class MovingAverage(ModelEmaV3):
    """timm's average of weights and statistics, over lists of tensors that are made once.

    timm asks both networks for their `state_dict` at every step, which takes longer than the arithmetic of a small
    network. The figures are the same.

    Args:
        network: keeps its parameters and buffers as objects, whatever becomes of their values.
        decay: per step; it rises to this from 0.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__(network, decay, use_warmup=True)
        mine, theirs = (tuple(n.state_dict(keep_vars=True).values()) for n in (self.module, network))
        averaged = [tensor.is_floating_point() for tensor in mine]
        self._averages, self._weights = _where(averaged, mine), _where(averaged, theirs)
        copied = [not is_float for is_float in averaged]
        self._copies, self._originals = _where(copied, mine), _where(copied, theirs)

    def apply_update_(self, model: nn.Module, decay: float) -> None:
        """timm's hook: take in the present state of the network that it was made of."""
        torch._foreach_lerp_(self._averages, self._weights, weight=1.0 - decay)
        if self._copies:
            torch._foreach_copy_(self._copies, self._originals)


def _where(chosen: Sequence[bool], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor, wanted in zip(tensors, chosen, strict=True) if wanted]
