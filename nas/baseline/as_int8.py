"""Options and networks as deployments in int8 compute them, so that what they lose by rounding counts in comparisons.

Blocks differ in it: of the same accuracy in floating point, one with few large values among many small ones loses most.
"""

from collections.abc import Callable

import torch
from torch import nn

from nas.deployment import Deployment
from nas.errors import UserError
from nas.finetune.quantisation import calibrate
from nas.runtimes.cpu import largest_int8_weight
from nas.training.rounding import fixed, rounded
from search_spaces.modules import folded

AsDeployed = Callable[[nn.Module, torch.Tensor], nn.Module]
"""Makes of a module, and inputs (b, ...) of it, one that computes as a deployment does."""


def as_deployed(deployment: Deployment) -> AsDeployed | None:
    """`as_int8` where the deployment multiplies numbers of 8 bits; None where floating point says enough."""
    return as_int8 if deployment.computes_in == "int8" else None


@torch.no_grad()
def as_int8(module: nn.Module, given: torch.Tensor) -> nn.Module:
    """A copy with weights and activations rounded to 8 bits (`nas.training.rounding`), in evaluation mode.

    `module` itself where its operations cannot be followed, or its answers are no numbers.

    Args:
        module: on the device of `given`.
        given: inputs (b, ...), which the ranges of activations are taken from.
    """
    whole = folded(module)
    if not whole(given).isfinite().all():
        return module
    try:
        made = rounded(whole.cpu(), largest_weight=largest_int8_weight(None))
    except UserError:
        return module
    made.to(given.device)
    calibrate(made, [given])
    return fixed(made)
