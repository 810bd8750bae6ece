"""Muon: SGD whose steps of convolutions are made orthogonal (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

Each step goes equally far in all directions that a filter bank's gradients span, so that those in which they are small
are learnt in few epochs as well. All other tensors (linear layers, norms, biases) get Nesterov SGD.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration; three rounds take the larger singular values to about 1."""
_ROUNDS = 3
_EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """One optimiser of two kinds of groups.

    Groups with `orthogonal: True` hold weights of convolutions, (out, in, k, k), before a norm: these keep a norm of
    the square root of their `out`, so that a rate says by how much of itself a filter bank turns and decay has nothing
    to do. `parts` is the number of groups of these convolutions, each of which is turned for itself. The other tensors
    are stepped as torch's SGD does, with their `weight_decay`.

    Args:
        groups: `params`, and perhaps `orthogonal`, `parts`, `lr`, `momentum` and `weight_decay` of their own.
        lr: of groups that name none.
        momentum: Nesterov's, of groups that name none.
        weight_decay: of groups that name none.
        products: dtype in which matrices are made orthogonal.
    """

    # Without the decorator of torch's own, which imports its compiler at the first call: seconds in each process that
    # trains, for an optimiser that is never compiled.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float,
        momentum: float,
        weight_decay: float,
        products: torch.dtype = torch.bfloat16,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "orthogonal": False, "parts": 1}
        super().__init__(groups, defaults)
        self._products = products

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient; `closure` is not called."""
        for group in self.param_groups:
            with_gradients: list[torch.Tensor] = [p for p in group["params"] if p.grad is not None]
            if not with_gradients:
                continue
            updates = self._nesterov(with_gradients, group["momentum"], group["weight_decay"], group["orthogonal"])
            if group["orthogonal"]:
                for parameter, update in zip(with_gradients, updates, strict=True):
                    parameter.mul_(len(parameter) ** 0.5 / (parameter.norm() + _EPS))
                    parameter.sub_(orthogonal(update, group["parts"], self._products), alpha=group["lr"])
            else:
                torch._foreach_add_(with_gradients, updates, alpha=-group["lr"])

    def _nesterov(
        self, parameters: list[torch.Tensor], momentum: float, decay: float, orthogonal: bool
    ) -> list[torch.Tensor]:
        gradients = [p.grad for p in parameters if p.grad is not None]
        if decay and not orthogonal:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=decay))
        for parameter in parameters:
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        buffers = [self.state[p]["momentum_buffer"] for p in parameters]
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, gradients)
        return list(torch._foreach_add(gradients, buffers, alpha=momentum))


def orthogonal(update: torch.Tensor, parts: int = 1, products: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """About the nearest semi-orthogonal matrix to each of `parts` equal parts of `update` (out, ...).

    A part is seen as a matrix (out / parts, n), multiplied in the dtype `products`. Shape and dtype are those of
    `update`.
    """
    matrices = update.reshape(parts, len(update) // parts, -1).to(products)
    if tall := matrices.shape[1] > matrices.shape[2]:
        matrices = matrices.mT
    matrices = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + _EPS)
    a, b, c = _COEFFICIENTS
    for _ in range(_ROUNDS):
        gram = torch.bmm(matrices, matrices.mT)
        # Sums within the products: passes of their own over the matrices took as long as the products (CPU, bf16).
        matrices = torch.baddbmm(matrices, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), matrices, beta=a)
    found: torch.Tensor = matrices.mT if tall else matrices
    return found.to(update.dtype).reshape(update.shape)
