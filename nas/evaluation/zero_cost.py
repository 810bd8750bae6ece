"""Scores of an untrained network from one mini-batch: cheap, noisy, and never trusted without calibration.

Each takes a network, normalised images `(n, 3, h, w)` float32 and labels `(n,)` int64, returns one number (higher
should mean better) and leaves the network as it was. They serve as extra inputs of the learned accuracy predictor,
which weighs them by how well they hold on the data at hand.
"""

import copy
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nas.errors import UserError

Proxy = Callable[[nn.Module, Tensor, Tensor], float]


def grad_norm(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log Euclidean norm of the loss gradient (Abdelfattah et al. 2021, https://arxiv.org/abs/2101.08134)."""
    network = copy.deepcopy(network).train()
    nn.functional.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
    squares = [float(p.grad.square().sum()) for p in network.parameters() if p.grad is not None]
    return _log(sum(squares)) / 2


def synflow(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log of the synaptic flow `sum |w| * dR/d|w|` at all-ones input (Tanaka et al. 2020, https://arxiv.org/abs/2006.05467).

    Batch norms act as the identity, as in Abdelfattah et al. 2021; computed in float64 because products over layers
    reach 1e61.
    """
    network = copy.deepcopy(network).double().eval()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean, module.running_var = torch.zeros_like(module.bias), torch.ones_like(module.bias)
                module.eps = 0.0
        for parameter in network.parameters():
            parameter.abs_()
    network(torch.ones_like(images[:1], dtype=torch.float64)).sum().backward()
    return _log(sum(float((p * p.grad).detach().sum()) for p in network.parameters() if p.grad is not None))


def naswot(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log determinant of the Hamming kernel of activation patterns (Mellor et al. 2021, https://arxiv.org/abs/2006.04647).

    Raises `UserError` for a network without ReLU-like activations, which has no patterns.
    """
    network = copy.deepcopy(network).train()
    n = len(images)
    kernel = torch.zeros(n, n, dtype=torch.float64)
    seen = 0

    def collect(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal kernel, seen
        active = (output > 0).flatten(1).float()
        kernel = kernel + active @ active.T + (1 - active) @ (1 - active).T
        seen += active.shape[1]

    for module in network.modules():
        if isinstance(module, nn.ReLU | nn.Hardswish):
            module.register_forward_hook(collect)
    with torch.no_grad():
        network(images)
    if not seen:
        raise UserError("naswot needs a network with ReLU-like activations, this one has none", "leave it out")
    # Scaled by the number of units, so that depth alone does not decide; jitter keeps equal patterns finite.
    sign, logdet = np.linalg.slogdet((kernel / seen).numpy() + 1e-6 * np.eye(n))
    return float(logdet) if sign > 0 else float("-inf")


def _log(value: float) -> float:
    return float(np.log(max(value, 1e-300)))


PROXIES: Mapping[str, Proxy] = {"grad_norm": grad_norm, "synflow": synflow, "naswot": naswot}


def zero_cost_scores(
    network: nn.Module, images: Tensor, labels: Tensor, names: Sequence[str] = tuple(PROXIES)
) -> NDArray[np.float64]:
    """Scores (len(names),); one that is not finite is NaN, which the accuracy predictor treats as missing."""
    scores = np.array([PROXIES[name](network, images, labels) for name in names], dtype=np.float64)
    return np.where(np.isfinite(scores), scores, np.nan)
