"""Zero-cost proxies from the gradients of the weights."""

import torch
from torch import Tensor, nn

from nas.evaluation.proxy_scratch import check_inputs, check_labels, log_score, loss_of, scoring, weights


def grad_norm(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Log of the sum over layers of the Euclidean norm of the loss gradient.

    Abdelfattah et al. 2021, "Zero-cost proxies for lightweight NAS" (https://arxiv.org/abs/2101.08134).
    """
    check_inputs(inputs)
    check_labels(inputs, labels)
    with scoring(network) as copied:
        loss_of(copied, inputs, labels).backward()  # type: ignore[no-untyped-call]
        return log_score(sum(float(w.grad.norm()) for w in weights(copied) if w.grad is not None))


def synflow(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Log of the synaptic flow `sum |w| * dR/d|w|` at all-ones input; `inputs` only gives the shape.

    Where the input is of integers (token ids), which cannot be ones, the first one of `inputs` is taken.

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
        first = inputs[:1]
        copied(torch.ones_like(first, dtype=torch.float64) if first.is_floating_point() else first).sum().backward()
        return log_score(sum(float((w.detach() * w.grad).abs().sum()) for w in weights(copied) if w.grad is not None))


def _pass_the_input(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return inputs[0]
