"""A well-known network as a baseline of the search; each task has its own table of them.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.signature import OutputSpec, Signature, Size, TensorSpec

if TYPE_CHECKING:
    from torch import nn

TORCHVISION, TIMM, PYTHON = "torchvision:", "timm:", "python:"
"""What the names of a library's networks begin with, as published there: `torchvision:resnet18`; and those of networks
that a function of an installed package builds: `python:package.module:function`."""


@dataclass(frozen=True, slots=True)
class BaselineNetwork:
    """A well-known network: how to build it, and where it comes from."""

    make: Callable[[Signature], "nn.Module"]
    """A randomly initialised network that takes and gives just this."""
    description: str
    output: Callable[[Size, TensorSpec], OutputSpec]
    """Maps the size of the answer and the input to the network's output."""

    def signature(self, size: Size, input: TensorSpec) -> Signature:
        """The network's input and output."""
        return Signature(input, self.output(size, input))

    def build(self, signature: Signature) -> "nn.Module":
        """A network that takes and gives what `signature` (made by the method of that name) says, batch first."""
        return self.make(signature)
