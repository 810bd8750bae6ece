"""Networks of a baseline's units that take smaller images: the same layers, at fewer places.

A convolution's price falls with the square of the side, for no training at all; what is lost by it depends on how much
of the images is detail.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import interpolate

from nas.errors import UserError
from nas.networks.derive import units_for
from nas.networks.options import options_of, place_of
from nas.networks.units import Unit
from search_spaces import TensorSpec

SHARES = (0.875, 0.75)
"""Of the rows and columns that the baseline takes."""
_NAME = "smaller_images"


class SmallerImages(nn.Module):
    """Makes images (b, c, rows, columns) smaller: (b, c, side, side)."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return interpolate(images, size=(self.side, self.side), mode="bilinear", antialias=True)


def behind_smaller_images(network: nn.Sequential, side: int | None) -> nn.Sequential:
    """A chain that takes the baseline's images and makes them smaller first; None: it takes them as they are.

    Its weights have the names that they have in `network`.
    """
    if side is None:
        return network
    return nn.Sequential(OrderedDict([(_NAME, SmallerImages(side)), *network.named_children()]))


def on_its_own(network: nn.Module) -> nn.Module:
    """The chain without what makes its images smaller: it takes small images."""
    if not isinstance(network, nn.Sequential) or not len(network) or not isinstance(network[0], SmallerImages):
        return network
    return network[1:]


def require_same_units(network: nn.Module, units: Sequence[Unit], input: TensorSpec) -> None:
    """Make sure that the units of `network` are the same for another input.

    Args:
        network: in evaluation mode.
        units: its units for its own input.
        input: another one.

    Raises:
        UserError: they are not, or it does not take that input.
    """
    try:
        found = units_for(network, input)
        same = [_kind(unit) for unit in found] == [_kind(unit) for unit in units]
    except RuntimeError as error:  # of torch: shapes that do not fit
        raise UserError(f"images of {input.shape[-1]} px do not fit: {error}", "leave their size as it is") from error
    if not same or found[-1].output_shape != units[-1].output_shape:
        raise UserError(f"its units are others for images of {input.shape[-1]} px", "leave their size as it is")


def _kind(unit: Unit) -> tuple[object, ...]:
    """What has to be equal so that weights of a unit and of its options fit."""
    with torch.random.fork_rng():
        return unit.name, unit.params, place_of(unit).strides, tuple(options_of(unit))
