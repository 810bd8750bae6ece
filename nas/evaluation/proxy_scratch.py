"""Common parts of all zero-cost proxies: a copy to work on, checks of the batch, and the weights that count."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from nas.errors import UserError

_FLOOR = 1e-300


class NoScoreError(UserError):
    """This score does not exist for this network or this batch; other scores may."""


@contextmanager
def scoring(network: nn.Module) -> Iterator[nn.Module]:
    """A copy in training mode whose weights all take gradients; whatever happens to it, `network` stays as it was.

    Random layers (dropout) draw from a generator of their own with a fixed seed, so the same call gives the same
    score and the caller's random numbers go on undisturbed.
    """
    copied = deepcopy(network).train()
    for parameter in copied.parameters():
        parameter.requires_grad_(True)
        parameter.grad = None
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        yield copied


def check_inputs(inputs: Tensor) -> None:
    """Raises `UserError` unless `inputs` is a batch `(n, ...)` of two or more."""
    if inputs.ndim < 2 or len(inputs) < 2:
        raise UserError(
            f"zero-cost scores got inputs of shape {tuple(inputs.shape)}",
            "give at least two inputs as the network takes them, (n, ...)",
        )


def check_labels(inputs: Tensor, labels: Tensor) -> None:
    """Raises `UserError` unless `labels` holds one class index per input, `NoScoreError` if all are of one class."""
    if labels.shape != inputs.shape[:1] or labels.is_floating_point():
        raise UserError(
            f"{len(inputs)} inputs came with labels of shape {tuple(labels.shape)} and type {labels.dtype}",
            "give one integer class per input",
        )
    if int(labels.min()) < 0:
        raise UserError(f"label {int(labels.min())} is out of range", "classes are numbered from 0")
    if int(labels.min()) == int(labels.max()):
        raise NoScoreError(
            f"all {len(labels)} inputs of the batch are of class {int(labels[0])}", "draw the batch from all classes"
        )


def loss_of(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy; raises `UserError` for a label that the network has no output for."""
    logits = network(inputs)
    if int(labels.max()) >= logits.shape[1]:
        raise UserError(
            f"label {int(labels.max())} is out of range: the network has {logits.shape[1]} outputs",
            f"use labels 0 to {logits.shape[1] - 1}, or build the network for more classes",
        )
    return nn.functional.cross_entropy(logits, labels)


def weights(network: nn.Module) -> list[Tensor]:
    """The weights of all convolutions and linear layers: what the proxies' papers sum over; no biases, no norms."""
    return [m.weight for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


def log_score(value: float) -> float:
    """Natural logarithm, with a floor (-690.8) for networks that pass no signal at all; NaN stays NaN."""
    return float(np.log(max(value, _FLOOR)))
