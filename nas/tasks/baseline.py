"""A well-known network as a baseline of the search; each task has its own table of them.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UserError

if TYPE_CHECKING:
    from torch import nn

_HEADS = ("fc.", "classifier.")


@dataclass(frozen=True, slots=True)
class BaselineNetwork:
    """A well-known network: how to build it, and where it comes from."""

    make: Callable[[int, int], "nn.Module"]
    """`(num_classes, resolution)` -> a randomly initialised network."""
    description: str
    head_kind: str | None = None
    """How its output is to be read, where its task knows several ways (detection)."""

    def build(self, num_classes: int, resolution: int, weights: Path | None = None) -> "nn.Module":
        """A network (b, 3, resolution, resolution) -> (b, num_classes).

        Args:
            resolution: below 64 px the ResNets get the usual small-image stem (He et al. 2016, CIFAR): a 3x3
                convolution of stride 1 and no pooling, instead of a total stride of 4. The other networks are always
                used as published, whatever the resolution.
            weights: a local safetensors file with the network's state; the head may have another number of classes
                (it is then left random). None: random weights.

        Raises:
            UserError: the file is no safetensors file, or of another network.
        """
        network = self.make(num_classes, resolution)
        if weights is not None:
            _load_weights(network, weights)
        return network


def _load_weights(network: "nn.Module", path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        given = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read weights '{path}': {error}", "give a safetensors file") from error
    state = network.state_dict()
    fitting = {k: v for k, v in given.items() if k in state and v.shape == state[k].shape}
    wrong = sorted(k for k in state.keys() ^ fitting.keys() | given.keys() - fitting.keys() if not k.startswith(_HEADS))
    if wrong:
        raise UserError(
            f"weights '{path}' are of another network: {len(wrong)} tensors differ, the first is {wrong[0]!r}",
            "give the weights of this network at this resolution",
        )
    network.load_state_dict(fitting, strict=False)
