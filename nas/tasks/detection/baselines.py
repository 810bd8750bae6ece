"""Well-known detectors as baselines: torchvision's, trained from scratch like every candidate.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nas.tasks.baseline import BaselineNetwork

if TYPE_CHECKING:
    from torch import nn


def _torchvision(name: str, description: str, head_kind: str) -> BaselineNetwork:
    def make(num_classes: int, resolution: int) -> "nn.Module":
        from nas.tasks.detection import torchvision_networks

        network: nn.Module = getattr(torchvision_networks, name)(num_classes)
        return network

    return BaselineNetwork(make, description, head_kind)


BASELINES: Mapping[str, BaselineNetwork] = {
    "ssdlite320_mobilenet_v3_large": _torchvision("ssdlite320_mobilenet_v3_large", "Howard et al. 2019", "ssd"),
    "retinanet_resnet18": _torchvision("retinanet_resnet18", "Lin et al. 2017, on ResNet-18", "retinanet"),
    "fcos_resnet18": _torchvision("fcos_resnet18", "Tian et al. 2019, on ResNet-18", "fcos"),
}
"""In order of cost. All take any resolution; the default boxes of SSD grow with it."""
