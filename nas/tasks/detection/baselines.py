"""Well-known detectors as baselines: torchvision's, trained from scratch like every candidate.

Importing this module is cheap: torch and torchvision are imported when a network is built.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nas.data.images import image_side
from nas.tasks.baseline import BaselineNetwork
from search_spaces.signature import OutputSpec, Signature, Size, TensorSpec, class_count

if TYPE_CHECKING:
    from torch import nn


def _torchvision(name: str, description: str, head_kind: str) -> BaselineNetwork:
    def make(signature: Signature) -> "nn.Module":
        from nas.tasks.detection import torchvision_networks

        network: nn.Module = getattr(torchvision_networks, name)(class_count(signature.output.size))
        return network

    def output(size: Size, input: TensorSpec) -> OutputSpec:
        from nas.tasks.detection.torchvision_heads import raw_shape

        return OutputSpec(head_kind, size, raw_shape(head_kind, class_count(size), image_side(input)))

    return BaselineNetwork(make, description, output)


BASELINES: Mapping[str, BaselineNetwork] = {
    "ssdlite320_mobilenet_v3_large": _torchvision("ssdlite320_mobilenet_v3_large", "Howard et al. 2019", "ssd"),
    "retinanet_resnet18": _torchvision("retinanet_resnet18", "Lin et al. 2017, on ResNet-18", "retinanet"),
    "fcos_resnet18": _torchvision("fcos_resnet18", "Tian et al. 2019, on ResNet-18", "fcos"),
}
"""Well-known detectors in order of cost. All take any resolution; the default boxes of SSD grow with it."""
