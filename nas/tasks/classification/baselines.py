"""Well-known networks as baselines: torchvision's, and ResNet-10 at three widths.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nas.tasks.baseline import BaselineNetwork

if TYPE_CHECKING:
    from torch import nn

SMALL_INPUT = 64
"""Below this resolution the ResNets' stem keeps the resolution."""


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
        from nas.tasks.classification.resnet10 import ResNet10

        return ResNet10(num_classes, width=width, small_input=resolution < SMALL_INPUT)

    return make


BASELINES: Mapping[str, BaselineNetwork] = {
    "resnet10_w50": BaselineNetwork(_resnet10(0.5), "ResNet with one basic block per stage, half as wide"),
    "resnet10_w75": BaselineNetwork(_resnet10(0.75), "ResNet with one basic block per stage, three quarters as wide"),
    "resnet10": BaselineNetwork(_resnet10(1.0), "ResNet with one basic block per stage"),
    "resnet18": BaselineNetwork(_torchvision_resnet("resnet18"), "He et al. 2016"),
    "resnet50": BaselineNetwork(_torchvision_resnet("resnet50"), "He et al. 2016"),
    "mobilenet_v3_small": BaselineNetwork(_torchvision("mobilenet_v3_small"), "Howard et al. 2019"),
    "mobilenet_v3_large": BaselineNetwork(_torchvision("mobilenet_v3_large"), "Howard et al. 2019"),
    "efficientnet_b0": BaselineNetwork(_torchvision("efficientnet_b0"), "Tan and Le 2019"),
    "regnet_y_400mf": BaselineNetwork(_torchvision("regnet_y_400mf"), "Radosavovic et al. 2020"),
}
