"""The heads of torchvision's one-stage detectors: their losses as torchvision computes them, their decoding in numpy.

ssd        Liu et al. 2016, https://arxiv.org/abs/1512.02325: offsets to default boxes, softmax with a background class
retinanet  Lin et al. 2017, https://arxiv.org/abs/1708.02002: offsets to anchor boxes, a sigmoid per class
fcos       Tian et al. 2019, https://arxiv.org/abs/1904.01355: distances from points, sigmoids, and centre-ness

Dimensions: b or n images, A predictions per image, c classes. Raw outputs are (b, A, 4 + c); for `ssd`
(b, A, 4 + 1 + c) with the background first, for `fcos` (b, A, 4 + c + 1) with the centre-ness last.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.anchors import Level, anchor_boxes, anchors_of
from nas.tasks.detection.decoding import decode_fcos, decode_retinanet, decode_ssd

if TYPE_CHECKING:
    import torch

    from nas.tasks.detection.heads import BoxTargets

Floats = NDArray[np.float32]

SSD_RATIOS = (2.0, 3.0)
SSD_MIN_SCALE, SSD_MAX_SCALE = 0.2, 0.95
"""Sizes of the default boxes relative to the image, as torchvision's `ssdlite320_mobilenet_v3_large` has them."""
OFFSET_WEIGHTS: Mapping[str, tuple[float, float, float, float]] = {
    "ssd": (10.0, 10.0, 5.0, 5.0),
    "retinanet": (1.0, 1.0, 1.0, 1.0),
}
"""Factors that multiply offsets from anchor boxes in training."""
RETINANET_SIZES_PX = (32, 64, 128, 256, 512)
FCOS_SIZES_PX = (8, 16, 32, 64, 128)


class SsdHead:
    """Smooth L1 and cross-entropy with hard negatives mined; see `nas.tasks.detection.heads.Head`."""

    def levels(self, resolution: int) -> tuple[Level, ...]:
        cells = _halved(-(-resolution // 16), 6)
        scales = [*np.linspace(SSD_MIN_SCALE, SSD_MAX_SCALE, len(cells)).tolist(), 1.0]
        levels = []
        for count, scale, larger in zip(cells, scales, scales[1:], strict=False):
            middle = math.sqrt(scale * larger)
            shapes = [(scale, scale), (middle, middle)]
            for ratio in map(math.sqrt, SSD_RATIOS):
                shapes += [(scale * ratio, scale / ratio), (scale / ratio, scale * ratio)]
            sizes = tuple((resolution * min(w, 1.0), resolution * min(h, 1.0)) for w, h in shapes)
            levels.append(Level(count, resolution / count, 0.5, sizes))
        return tuple(levels)

    def loss(self, raw: "torch.Tensor", targets: "Sequence[BoxTargets]", resolution: int) -> "torch.Tensor":
        import torch
        from torchvision.ops import box_iou

        raw, objects = raw.float(), _objects(targets, first_class=1)
        model = _torchvision_ssd()
        anchors = _anchor_tensor("ssd", resolution).to(raw.device)
        matched = [
            model.proposal_matcher(box_iou(o["boxes"], anchors)) if len(o["labels"])
            else torch.full((len(anchors),), -1, dtype=torch.int64, device=raw.device)
            for o in objects
        ]  # fmt: skip
        outputs = {"bbox_regression": raw[..., :4], "cls_logits": raw[..., 4:].contiguous()}
        with torch.autocast(raw.device.type, enabled=False):
            return _sum(model.compute_loss(objects, outputs, [anchors] * len(targets), matched))

    def decode(self, raw: Floats, resolution: int) -> tuple[Floats, Floats]:
        return decode_ssd(raw, *anchors_of(self.levels(resolution)), resolution, OFFSET_WEIGHTS["ssd"])


class RetinaNetHead:
    """L1 and focal loss; see `nas.tasks.detection.heads.Head`."""

    def levels(self, resolution: int) -> tuple[Level, ...]:
        levels = []
        for cells, size in zip(_halved(-(-resolution // 8), 5), RETINANET_SIZES_PX, strict=True):
            scaled = [int(size * 2 ** (third / 3)) for third in range(3)]
            # torchvision rounds half the sides.
            sizes = tuple(
                (2.0 * round(s / math.sqrt(ratio) / 2), 2.0 * round(s * math.sqrt(ratio) / 2))
                for ratio in (0.5, 1.0, 2.0) for s in scaled
            )  # fmt: skip
            levels.append(Level(cells, resolution // cells, 0.0, sizes))
        return tuple(levels)

    def loss(self, raw: "torch.Tensor", targets: "Sequence[BoxTargets]", resolution: int) -> "torch.Tensor":
        import torch

        raw = raw.float()
        anchors = _anchor_tensor("retinanet", resolution).to(raw.device)
        outputs = {"bbox_regression": raw[..., :4], "cls_logits": raw[..., 4:]}
        with torch.autocast(raw.device.type, enabled=False):
            return _sum(_torchvision_retinanet().compute_loss(_objects(targets), outputs, [anchors] * len(targets)))

    def decode(self, raw: Floats, resolution: int) -> tuple[Floats, Floats]:
        return decode_retinanet(raw, *anchors_of(self.levels(resolution)), resolution, OFFSET_WEIGHTS["retinanet"])


class FcosHead:
    """GIoU, focal loss and centre-ness; see `nas.tasks.detection.heads.Head`."""

    def levels(self, resolution: int) -> tuple[Level, ...]:
        cells = _halved(-(-resolution // 8), 5)
        return tuple(
            Level(count, resolution // count, 0.0, ((float(size), float(size)),))
            for count, size in zip(cells, FCOS_SIZES_PX, strict=True)
        )

    def loss(self, raw: "torch.Tensor", targets: "Sequence[BoxTargets]", resolution: int) -> "torch.Tensor":
        import torch

        raw = raw.float()
        anchors = _anchor_tensor("fcos", resolution).to(raw.device)
        counts = [level.cells**2 for level in self.levels(resolution)]
        outputs = {"bbox_regression": raw[..., :4], "cls_logits": raw[..., 4:-1], "bbox_ctrness": raw[..., -1:]}
        with torch.autocast(raw.device.type, enabled=False):
            return _sum(_torchvision_fcos().compute_loss(_objects(targets), outputs, [anchors] * len(targets), counts))

    def decode(self, raw: Floats, resolution: int) -> tuple[Floats, Floats]:
        return decode_fcos(raw, *anchors_of(self.levels(resolution)), resolution, ())


TORCHVISION_HEADS: Mapping[str, SsdHead | RetinaNetHead | FcosHead] = {
    "ssd": SsdHead(),
    "retinanet": RetinaNetHead(),
    "fcos": FcosHead(),
}
_FURTHER = {"ssd": 1, "retinanet": 0, "fcos": 1}
"""Numbers of a prediction beside its box and its classes: the background, the centre-ness."""


def raw_shape(kind: str, classes: int, resolution: int) -> tuple[int, int]:
    """Shape (A, 4 + ...) of the raw output for one image of `resolution` rows and columns."""
    levels = TORCHVISION_HEADS[kind].levels(resolution)
    predictions = sum(level.cells**2 * len(level.sizes_px) for level in levels)
    return predictions, 4 + classes + _FURTHER[kind]


def _halved(cells: int, levels: int) -> list[int]:
    """`cells`, and what convolutions of stride 2 make of it."""
    found = [cells]
    while len(found) < levels:
        found.append(-(-found[-1] // 2))
    return found


def _objects(targets: "Sequence[BoxTargets]", first_class: int = 0) -> "list[dict[str, torch.Tensor]]":
    """Targets as torchvision wants them. Crowd regions and boxes without area are no targets."""
    found = []
    for t in targets:
        wanted = ~t.crowd & (t.xyxy[:, 2:] > t.xyxy[:, :2]).all(dim=1)
        found.append({"boxes": t.xyxy[wanted], "labels": t.classes[wanted] + first_class})
    return found


def _sum(losses: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
    """All parts have weight 1 in torchvision's reference training."""
    import torch

    return torch.stack(list(losses.values())).sum()


@cache
def _anchor_tensor(kind: str, resolution: int) -> "torch.Tensor":
    import torch

    return torch.from_numpy(anchor_boxes(TORCHVISION_HEADS[kind].levels(resolution)))


# torchvision's losses and matchers are methods of its models. These have next to no weights, and none is ever run.


@cache
def _torchvision_ssd() -> Any:
    from torch import nn
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
    from torchvision.models.detection.ssd import SSD

    return SSD(nn.Identity(), DefaultBoxGenerator([[2, 3]] * 6), (32, 32), 2, head=nn.Identity())


@cache
def _torchvision_retinanet() -> Any:
    from torchvision.models.detection.retinanet import RetinaNet

    return RetinaNet(_backbone(out_channels=1), num_classes=1)


@cache
def _torchvision_fcos() -> Any:
    from torchvision.models.detection.fcos import FCOS

    return FCOS(_backbone(out_channels=32), num_classes=1)  # its group norms have 32 groups


def _backbone(out_channels: int) -> Any:
    from torch import nn

    backbone: Any = nn.Identity()
    backbone.out_channels = out_channels
    return backbone
