"""Zero-cost proxies from the gradients of the weights."""

import numpy as np
import torch
from torch import Tensor, nn

from nas.errors import UserError
from nas.evaluation.proxy_scratch import check_images, check_labels, log_score, loss_of, scoring, weights


def grad_norm(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log of the sum over layers of the Euclidean norm of the loss gradient.

    Abdelfattah et al. 2021, "Zero-cost proxies for lightweight NAS" (https://arxiv.org/abs/2101.08134).
    """
    check_images(images)
    check_labels(images, labels)
    with scoring(network) as copied:
        loss_of(copied, images, labels).backward()  # type: ignore[no-untyped-call]
        return log_score(sum(float(w.grad.norm()) for w in weights(copied) if w.grad is not None))


def snip(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log of the sum of `|w * dL/dw|` over all weights: what the loss would feel if they were cut.

    Lee et al. 2019, "SNIP" (https://arxiv.org/abs/1810.02340), summed as in Abdelfattah et al. 2021.
    """
    check_images(images)
    check_labels(images, labels)
    with scoring(network) as copied:
        loss_of(copied, images, labels).backward()  # type: ignore[no-untyped-call]
        return log_score(sum(float((w.detach() * w.grad).abs().sum()) for w in weights(copied) if w.grad is not None))


def synflow(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Log of the synaptic flow `sum |w| * dR/d|w|` at all-ones input; `images` only gives the shape.

    Tanaka et al. 2020, "Pruning neural networks without any data" (https://arxiv.org/abs/2006.05467). Batch norms
    are left out, as in Abdelfattah et al. 2021; in float64, because products over layers reach 1e61.
    """
    with scoring(network) as copied:
        copied.double().eval()  # dropout would cut paths
        for module in copied.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.register_forward_hook(_pass_the_input)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.abs_()
        copied(torch.ones_like(images[:1], dtype=torch.float64)).sum().backward()
        return log_score(sum(float((w.detach() * w.grad).abs().sum()) for w in weights(copied) if w.grad is not None))


def zico(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Sum over layers of the log of the summed signal-to-noise ratios of the gradients of two halves of the batch.

    Li et al. 2023, "ZiCo" (https://arxiv.org/abs/2301.11300): mean of `|g|` over its standard deviation. Needs four
    images or more.
    """
    check_images(images)
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


def _pass_the_input(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return inputs[0]
