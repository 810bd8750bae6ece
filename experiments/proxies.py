"""Zero-cost proxies of the literature that no search uses, beside those that one does, and their rank aggregate."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from nas.errors import UserError
from nas.evaluation.proxy_scratch import check_inputs, check_labels, log_score, loss_of, scoring, weights
from nas.evaluation.zero_cost import PROXIES, Proxy


def params(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Number of parameters; the baseline that every other score must beat."""
    return float(sum(p.numel() for p in network.parameters()))


def macs(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Multiply-adds of convolutions and matrix products for one image, branches as they are while training."""
    with scoring(network) as copied, torch.no_grad(), FlopCounterMode(display=False) as counter:
        copied.eval()(images[:1])
    return float(counter.get_total_flops()) / 2


def snip(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log of the sum of `|w * dL/dw|` over all weights: what the loss would feel if they were cut.

    Lee et al. 2019, "SNIP" (https://arxiv.org/abs/1810.02340), summed as in Abdelfattah et al. 2021.
    """
    check_inputs(images)
    check_labels(images, labels)
    with scoring(network) as copied:
        loss_of(copied, images, labels).backward()  # type: ignore[no-untyped-call]
        return log_score(sum(float((w.detach() * w.grad).abs().sum()) for w in weights(copied) if w.grad is not None))


def jacob_cov(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """How little the Jacobians of the images correlate: `-sum(log(v + k) + 1 / (v + k))` over eigenvalues v.

    The first score of Mellor et al. 2021 (https://arxiv.org/abs/2006.04647v1), as in Abdelfattah et al. 2021, k = 1e-5.
    `labels` are not used. NaN where the output does not depend on an image.
    """
    check_inputs(images)
    with scoring(network) as copied:
        copied.requires_grad_(False)  # only the images' gradients are wanted
        inputs = images.detach().clone().requires_grad_(True)
        outputs = copied(inputs)
        if not outputs.requires_grad:
            return float("nan")
        outputs.sum().backward()
        if inputs.grad is None:
            return float("nan")
        jacobians = inputs.grad.flatten(1).double().cpu().numpy()
    with np.errstate(all="ignore"):  # an image without influence has no correlation: NaN says so
        correlations = np.corrcoef(jacobians)
    if not np.isfinite(correlations).all():
        return float("nan")
    shifted = np.maximum(np.linalg.eigvalsh(correlations), 0.0) + 1e-5
    return -float(np.sum(np.log(shifted) + 1.0 / shifted))


def zico(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Sum over layers of the log of the summed signal-to-noise ratios of the gradients of two halves of the batch.

    Li et al. 2023, "ZiCo" (https://arxiv.org/abs/2301.11300): mean of `|g|` over its standard deviation. Needs four
    images or more.
    """
    check_inputs(images)
    check_labels(images, labels)
    half = len(images) // 2
    if half < 2:
        raise UserError(f"zico compares two halves of a batch, {len(images)} images are too few", "give at least 4")
    halves = []
    with scoring(network) as copied:
        for part in (slice(0, half), slice(half, 2 * half)):
            copied.zero_grad(set_to_none=True)
            loss_of(copied, images[part], labels[part]).backward()  # type: ignore[no-untyped-call]
            halves.append([w.grad for w in weights(copied)])
    total = 0.0
    for first, second in zip(*halves, strict=True):
        if first is None or second is None:
            continue
        mean, std = (first.abs() + second.abs()) / 2, (first - second).abs() / 2
        differs = std != 0  # NaN counts as different, so that it shows in the score
        ratio = float((mean[differs] / std[differs]).sum())
        if ratio != 0:
            total += float(np.log(ratio))
    return total


ALL_PROXIES: Mapping[str, Proxy] = {
    "params": params,
    "macs": macs,
    "grad_norm": PROXIES["grad_norm"],
    "snip": snip,
    "synflow": PROXIES["synflow"],
    "jacob_cov": jacob_cov,
    "naswot": PROXIES["naswot"],
    "zico": zico,
}
"""Every proxy that was compared; the third argument of `zero_cost_scores` takes their names."""


def rank_aggregate(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """One score (n,) from several (n, k): the sum over columns of log(rank / n), rank n for the best.

    The non-linear aggregate of AZ-NAS (Lee & Ham 2024, https://arxiv.org/abs/2403.19232): the logarithm makes a low
    rank in one column weigh more than a high one in another, so that no single proxy decides. It needs the candidates
    to compare with. Ties share their mean rank; NaN counts as the lowest.
    """
    from scipy.stats import rankdata

    lowest_first = np.where(np.isnan(scores), -np.inf, scores)
    ranks: NDArray[np.float64] = rankdata(lowest_first, axis=0)
    total: NDArray[np.float64] = np.log(ranks / len(scores)).sum(axis=1)
    return total
