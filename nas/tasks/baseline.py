"""A well-known network as a baseline of the search; each task has its own table of them.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class BaselineNetwork:
    """A well-known network: how to build it, and where it comes from."""

    make: Callable[[int, int], "nn.Module"]
    """`(num_classes, resolution)` -> a randomly initialised network."""
    description: str
    head_kind: str | None = None
    """How its output is to be read, where its task knows several ways (detection)."""

    def build(self, num_classes: int, resolution: int) -> "nn.Module":
        """A network (b, 3, resolution, resolution) -> (b, num_classes).

        Args:
            resolution: below 64 px the ResNets get the usual small-image stem (He et al. 2016, CIFAR): a 3x3
                convolution of stride 1 and no pooling, instead of a total stride of 4. The other networks are always
                used as published, whatever the resolution.
        """
        return self.make(num_classes, resolution)
