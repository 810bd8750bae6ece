"""From a network to one that is made of its units, with some of them replaced."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from nas.errors import UserError
from nas.networks.narrowing import narrowed
from nas.networks.options import replacement
from nas.networks.units import Unit, chain, units_of
from search_spaces import TensorSpec

EXAMPLES = 2
"""Inputs that a network is traced with."""


def units_for(network: nn.Module, input: TensorSpec) -> list[Unit]:
    """The units of `network` for that input; always the same for the same architecture, whatever its weights.

    Raises:
        UserError: it cannot be taken apart.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return units_of(network, input.draw_torch(EXAMPLES))


def derive(network: nn.Module, input: TensorSpec, options: Sequence[str], width: float = 1.0) -> nn.Sequential:
    """A network of the units of `network`, with fresh ones where an option says so; weights that stay are shared, or
    are slices where it becomes narrower.

    Args:
        network: with units for `input`.
        input: of the network.
        options: for each unit, in order, a name of `nas.networks.options.OPTIONS`, or `KEEP`.
        width: share of its channels, see `nas.networks.narrowing.narrowed`.

    Raises:
        UserError: there are more or fewer units, a unit has no such option, or it cannot become narrower.
    """
    units = units_for(network, input)
    if len(units) != len(options):
        raise UserError(
            f"{len(options)} options are given for the {len(units)} units of {type(network).__name__}",
            "was it written with another version of torchvision or timm? use that one",
        )
    return assembled(units if width == 1 else narrowed(units, width).units, options)


def assembled(units: Sequence[Unit], options: Sequence[str]) -> nn.Sequential:
    """As `derive`, of units that are at hand.

    Raises:
        UserError: a unit has no such option.
    """
    made = []
    for unit, option in zip(units, options, strict=True):
        try:
            made.append(replacement(unit, option))
        except KeyError as error:
            raise UserError(
                f"the unit {unit.name} cannot be replaced by {option!r}", "give options of that unit"
            ) from error
    return chain_of(units, made)


def chain_of(units: Sequence[Unit], modules: Sequence[nn.Module]) -> nn.Sequential:
    """The modules in a row, each under the name of its unit in a `nas.networks.units.chain`."""
    return chain([replace(unit, module=module) for unit, module in zip(units, modules, strict=True)])
