"""Zero-cost proxies from how a network tells the inputs of a batch apart."""

import numpy as np
import torch
from torch import Tensor, nn

from nas.evaluation.proxy_scratch import NoScoreError, check_inputs, scoring

GATES = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardswish)
"""Activations with a kink or a gate at zero. A hard-swish has no two linear pieces as a ReLU has, but its output is
positive exactly where its input is: the sign is taken for the pattern."""


def naswot(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Log determinant of the kernel that counts, for two inputs, the units on which their on/off patterns agree.

    Mellor et al. 2021, "Neural architecture search without training" (https://arxiv.org/abs/2006.04647). A unit is
    on where the output of a module in `GATES` is positive; activations called as functions are not seen. `labels`
    are not used. Raises `NoScoreError` for a network without such modules (all SiLU or GELU, say).
    """
    check_inputs(inputs)
    n = len(inputs)
    kernel = torch.zeros(n, n, dtype=torch.float64, device=inputs.device)
    units = 0

    def collect(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal units
        active = (output > 0).flatten(1).to(torch.float32)
        both, either = active @ active.T, active.sum(1)
        # on in both, or off in both: units - on in one - on in the other + on in both
        kernel.add_(2 * both - either[:, None] - either[None] + active.shape[1])
        units += active.shape[1]

    with scoring(network) as copied, torch.no_grad():
        for module in copied.modules():
            if isinstance(module, GATES):
                module.register_forward_hook(collect)
        outputs = copied(inputs)
    if not units:
        names = ", ".join(gate.__name__ for gate in GATES)
        raise NoScoreError(f"naswot needs a network with one of {names}; this one has none", "leave naswot out")
    if not bool(torch.isfinite(outputs).all()):
        return float("nan")
    # the jitter keeps two inputs with equal patterns finite; it is nothing beside the kernel of different ones
    sign, logdet = np.linalg.slogdet(kernel.cpu().numpy() + 1e-6 * units * np.eye(n))
    return float(logdet) if sign > 0 else float("nan")
