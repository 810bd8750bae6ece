"""torchvision's one-stage detectors as plain networks: normalised images in, one raw tensor out, random weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torchvision.models.detection.backbone_utils import BackboneWithFPN

_PARTS = ("bbox_regression", "cls_logits", "bbox_ctrness")
"""Outputs of torchvision's heads in the order they have in the raw tensor; FCOS alone has the last."""


class RawDetector(nn.Module):
    """(b, 3, r, r) float32, normalised -> raw (b, A, 4 + ...) as `nas.tasks.detection.torchvision_heads` reads it.

    Of torchvision's model it has the backbone and the head; resizing, anchors and post-processing are left out.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module, head_kind: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.head_kind = head_kind
        """Key in `nas.tasks.detection.heads.HEADS`."""

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.head(list(self.backbone(images).values()))
        return torch.cat([outputs[part] for part in _PARTS if part in outputs], dim=-1)


def ssdlite320_mobilenet_v3_large(num_classes: int) -> RawDetector:
    """MobileNetV3-Large with the reduced tail and SSDLite heads (Howard et al. 2019), as torchvision builds it."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large as build

    model = build(weights=None, weights_backbone=None, num_classes=1 + num_classes)
    return RawDetector(model.backbone, model.head, "ssd")


def fcos_resnet18(num_classes: int) -> RawDetector:
    """FCOS as torchvision's `fcos_resnet50_fpn`, on ResNet-18."""
    from torchvision.models.detection.fcos import FCOSHead

    return _on_resnet18(lambda channels: FCOSHead(channels, 1, num_classes), "fcos")


def retinanet_resnet18(num_classes: int) -> RawDetector:
    """RetinaNet as torchvision's `retinanet_resnet50_fpn`, on ResNet-18."""
    from torchvision.models.detection.retinanet import RetinaNetHead

    return _on_resnet18(lambda channels: RetinaNetHead(channels, 9, num_classes), "retinanet")


def _on_resnet18(head: Callable[[int], nn.Module], head_kind: str) -> RawDetector:
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    backbone: BackboneWithFPN = resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, norm_layer=nn.BatchNorm2d, trainable_layers=5,
        returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256),
    )  # fmt: skip
    return RawDetector(backbone, head(backbone.out_channels), head_kind)
