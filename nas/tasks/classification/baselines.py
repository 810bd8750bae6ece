"""Well-known networks as baselines: torchvision's, and ResNet-10 at three widths.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nas.data.images import image_side
from nas.tasks.baseline import BaselineNetwork
from search_spaces.signature import LOGITS, OutputSpec, Signature, class_count

if TYPE_CHECKING:
    from torch import nn

SMALL_INPUT = 64
"""Below so many pixels the ResNets get the usual small-image stem (He et al. 2016, CIFAR): a 3x3 convolution of stride
1 and no pooling, instead of a total stride of 4. The other networks are always used as published."""


def _is_small(signature: Signature) -> bool:
    return image_side(signature.input) < SMALL_INPUT


def _torchvision(name: str) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        from torchvision.models import get_model

        network: nn.Module = get_model(name, weights=None, num_classes=class_count(signature.output.size))
        return network

    return make


def _torchvision_resnet(name: str) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        from torch import nn
        from torchvision.models import get_model

        network: nn.Module = get_model(name, weights=None, num_classes=class_count(signature.output.size))
        if _is_small(signature):
            network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
            network.maxpool = nn.Identity()
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        return network

    return make


def _resnet10(width: float) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        from nas.tasks.classification.resnet10 import ResNet10

        return ResNet10(class_count(signature.output.size), width=width, small_input=_is_small(signature))

    return make


def _classifier(make: Callable[[Signature], "nn.Module"], description: str) -> BaselineNetwork:
    return BaselineNetwork(make, description, lambda size, _: OutputSpec(LOGITS, size, (class_count(size),)))


BASELINES: Mapping[str, BaselineNetwork] = {
    "resnet10_w50": _classifier(_resnet10(0.5), "ResNet with one basic block per stage, half as wide"),
    "resnet10_w75": _classifier(_resnet10(0.75), "ResNet with one basic block per stage, three quarters as wide"),
    "resnet10": _classifier(_resnet10(1.0), "ResNet with one basic block per stage"),
    "resnet18": _classifier(_torchvision_resnet("resnet18"), "He et al. 2016"),
    "resnet50": _classifier(_torchvision_resnet("resnet50"), "He et al. 2016"),
    "mobilenet_v3_small": _classifier(_torchvision("mobilenet_v3_small"), "Howard et al. 2019"),
    "mobilenet_v3_large": _classifier(_torchvision("mobilenet_v3_large"), "Howard et al. 2019"),
    "efficientnet_b0": _classifier(_torchvision("efficientnet_b0"), "Tan and Le 2019"),
    "regnet_y_400mf": _classifier(_torchvision("regnet_y_400mf"), "Radosavovic et al. 2020"),
}
