"""A closed-form start for options: the last layer of each by linear regression on what its unit gives.

What goes into the last convolution of an option is a set of features, random ones at first. The weights that map them
best to the unit's output are those of a ridge regression, which a few images determine: as much as hundreds of steps
of gradient descent bring, in seconds.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn.functional import unfold

from search_spaces.modules import ConvBn, PooledLinear, Residual

PLACES = 48
"""Places of a feature map that are taken of each image."""
MOST_FEATURES = 2400
"""Beyond so many inputs of one output channel a regression takes longer than it saves."""
RIDGE = 1e-2
"""Penalty of the weights, by the mean square of a feature; more where there are few rows."""
_CHUNK_NUMBERS = 50_000_000
"""Numbers of patches that are unfolded at once."""


@torch.no_grad()
def fit_last_layer(option: nn.Module, given: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Set the weights of the last layer of `option`, in place, so that it gives `wanted` for `given` as well as it can.

    Args:
        option: of `nas.networks.options`, in training mode: batch norms use the batch.
        given: inputs (b, ...) of its unit.
        wanted: outputs (b, ...) of its unit.

    Returns:
        Whether it was fitted: not an option without weights, nor one whose last layer has too many inputs, which gets
        the scale of its outputs alone, or nothing around a shortcut.
    """
    body, shortcut = _parts(option)
    if body is None:
        return False
    seen: list[torch.Tensor] = []
    handle = _linear_of(body).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        option(given)
    finally:
        handle.remove()
    target = wanted if shortcut is None else wanted - shortcut(given)
    if isinstance(body, PooledLinear):
        weight, bias, _ = _ridge(seen[0], target)
        body.linear.weight.copy_(weight.T)
        body.linear.bias.copy_(bias)
        return True
    conv, norm = body.conv, body.bn
    assert isinstance(norm, nn.BatchNorm2d)
    if conv.groups != 1 or conv.in_channels * conv.kernel_size[0] ** 2 > MOST_FEATURES:
        if shortcut is None:  # around a shortcut it begins as nothing, which is nearer than noise of the right size
            _match_scale(norm, target)
        return False
    rows, answers = zip(*_sampled(conv, seen[0], target), strict=True)
    weight, bias, output = _ridge(torch.cat(rows), torch.cat(answers))
    conv.weight.copy_(weight.T.reshape(conv.weight.shape))
    # The norm subtracts the mean of what the convolution gives and divides by its deviation: both are put back.
    norm.weight.copy_(output.std(0).clamp_min(1e-3))
    norm.bias.copy_(output.mean(0) + bias)
    return True


def _parts(option: nn.Module) -> tuple[ConvBn | PooledLinear | None, nn.Module | None]:
    """The part of an option that ends in its last layer, and what is added to it behind."""
    if isinstance(option, ConvBn | PooledLinear):
        return option, None
    if isinstance(option, Residual) and isinstance(option.body, nn.Sequential):
        last = option.body[-1]
        if isinstance(last, ConvBn):
            return last, option.shortcut
    return None, None


def _linear_of(body: ConvBn | PooledLinear) -> nn.Module:
    return body.linear if isinstance(body, PooledLinear) else body.conv


def _match_scale(norm: nn.BatchNorm2d, target: torch.Tensor) -> None:
    """Give each channel the mean and the deviation that it is to have."""
    flat = target.transpose(0, 1).flatten(1)
    norm.weight.copy_(flat.std(1).clamp_min(1e-3))
    norm.bias.copy_(flat.mean(1))


def _sampled(
    conv: nn.Conv2d, inputs: torch.Tensor, target: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Patches (n, c * k * k) that a convolution sees at random places, and what is wanted there (n, out)."""
    rng = np.random.default_rng(0)
    places = target.shape[2] * target.shape[3]
    chunk = max(1, _CHUNK_NUMBERS // (inputs.shape[1] * conv.kernel_size[0] ** 2 * places))
    for start in range(0, len(inputs), chunk):
        chosen = torch.from_numpy(rng.permutation(places)[:PLACES])
        patches = unfold(
            inputs[start : start + chunk], conv.kernel_size, padding=conv.padding, stride=conv.stride  # type: ignore[arg-type]
        )  # fmt: skip
        answers = target[start : start + chunk].flatten(2)
        yield patches[:, :, chosen].transpose(1, 2).flatten(0, 1), answers[:, :, chosen].transpose(1, 2).flatten(0, 1)


def _ridge(rows: torch.Tensor, answers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights (features, out) and bias (out,) of a ridge regression, and what the weights give without the bias."""
    mean, wanted = rows.mean(0), answers.mean(0)
    centred = (rows - mean).double()
    count, features = centred.shape
    gram = centred.T @ centred / count
    penalty = RIDGE * max(1.0, 4 * features / count) * gram.diagonal().mean().clamp_min(1e-12)
    gram.diagonal().add_(penalty)
    weight = torch.linalg.solve(gram, centred.T @ (answers - wanted).double() / count).to(rows.dtype)
    return weight, wanted - mean @ weight, rows @ weight
