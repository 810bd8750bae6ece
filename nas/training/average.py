"""Averages of a network's weights: moving over the steps of a training, and plain over its last epochs."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from nas.files.tensors import Tensors
from nas.training.recipe import AverageRise


class MovingAverage:
    """An exponential moving average of weights and statistics, as a network of its own (`module`).

    The decay rises to `decay`, so that the random first weights are forgotten in short trainings. Lists of tensors are
    made once: naming all of a network's at every step takes longer than the arithmetic of a small one.

    Args:
        network: keeps its parameters and buffers as objects, whatever becomes of their values.
        decay: per step, in (0, 1).
        rise: how the decay rises, see `decay_at`.
    """

    def __init__(self, network: nn.Module, decay: float, rise: AverageRise) -> None:
        self.module = copy.deepcopy(network).eval()
        self._decay, self._rise = decay, rise
        mine, theirs = (_tensors(n) for n in (self.module, network))
        averaged = [tensor.is_floating_point() for tensor in mine]
        self._averages, self._weights = _where(averaged, mine), _where(averaged, theirs)
        copied = [not is_float for is_float in averaged]
        self._copies, self._originals = _where(copied, mine), _where(copied, theirs)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the present state of the network that it was made of, after optimiser step `step` (from 1)."""
        torch._foreach_lerp_(self._averages, self._weights, weight=1.0 - decay_at(step, self._decay, self._rise))
        if self._copies:
            torch._foreach_copy_(self._copies, self._originals)


def decay_at(step: int, decay: float, rise: AverageRise) -> float:
    """The decay of the average's update behind optimiser step `step`, from 1; at most `decay`.

    `power` is timm's rule, `1 - step^(-2/3)`: the first update copies. `ratio` is `(1 + step) / (10 + step)`, from 0.18
    on: it looks further back in the first hundred steps.
    """
    if rise == "ratio":
        return min(decay, (1 + step) / (10 + step))
    before = step - 1
    return max(min(1 - (1 + before) ** -(2 / 3), decay), 0.0) if before > 0 else 0.0


class EpochAverage:
    """The mean of a network's state at the end of several epochs (Izmailov et al. 2018)."""

    def __init__(self) -> None:
        self.sums: Tensors = {}
        self.count = 0

    def add(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take in a `state_dict`; of what is no floating-point number the last one stays."""
        for name, tensor in state.items():
            known = self.sums.get(name)
            self.sums[name] = known + tensor if known is not None and tensor.is_floating_point() else tensor.clone()
        self.count += 1

    def mean(self) -> Tensors | None:
        """The mean as a `state_dict`; None where nothing was added."""
        if not self.count:
            return None
        return {k: v / self.count if v.is_floating_point() else v for k, v in self.sums.items()}


def _tensors(network: nn.Module) -> tuple[torch.Tensor, ...]:
    """Parameters and buffers, each once: a layer in two places would be averaged twice in a step."""
    return tuple({id(tensor): tensor for tensor in network.state_dict(keep_vars=True).values()}.values())


def _where(chosen: Sequence[bool], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor, wanted in zip(tensors, chosen, strict=True) if wanted]
