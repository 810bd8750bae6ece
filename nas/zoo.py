"""Well-known networks as opponents of the search: torchvision's, and ResNet-10 at three widths.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UserError

if TYPE_CHECKING:
    from torch import nn

SMALL_INPUT = 64
"""Below this resolution the ResNets' stem keeps the resolution."""

_HEADS = ("fc.", "classifier.")


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One opponent: how to build it, and what it is."""

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


def _torchvision(name: str) -> Callable[[int, int], "nn.Module"]:
    def make(num_classes: int, resolution: int) -> "nn.Module":
        from torchvision.models import get_model

        network: nn.Module = get_model(name, weights=None, num_classes=num_classes)
        return network

    return make


def _torchvision_resnet(name: str) -> Callable[[int, int], "nn.Module"]:
    def make(num_classes: int, resolution: int) -> "nn.Module":
        from torch import nn
        from torchvision.models import get_model

        network: nn.Module = get_model(name, weights=None, num_classes=num_classes)
        if resolution < SMALL_INPUT:
            network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
            network.maxpool = nn.Identity()
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        return network

    return make


def _resnet10(width: float) -> Callable[[int, int], "nn.Module"]:
    def make(num_classes: int, resolution: int) -> "nn.Module":
        from nas.resnet10 import ResNet10

        return ResNet10(num_classes, width=width, small_input=resolution < SMALL_INPUT)

    return make


ZOO: Mapping[str, ZooModel] = {
    "resnet10_w50": ZooModel(_resnet10(0.5), "ResNet with one basic block per stage, half as wide"),
    "resnet10_w75": ZooModel(_resnet10(0.75), "ResNet with one basic block per stage, three quarters as wide"),
    "resnet10": ZooModel(_resnet10(1.0), "ResNet with one basic block per stage"),
    "resnet18": ZooModel(_torchvision_resnet("resnet18"), "He et al. 2016"),
    "resnet50": ZooModel(_torchvision_resnet("resnet50"), "He et al. 2016"),
    "mobilenet_v3_small": ZooModel(_torchvision("mobilenet_v3_small"), "Howard et al. 2019"),
    "mobilenet_v3_large": ZooModel(_torchvision("mobilenet_v3_large"), "Howard et al. 2019"),
    "efficientnet_b0": ZooModel(_torchvision("efficientnet_b0"), "Tan and Le 2019"),
    "regnet_y_400mf": ZooModel(_torchvision("regnet_y_400mf"), "Radosavovic et al. 2020"),
}
