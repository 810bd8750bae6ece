"""The modules of a one-stage detector: neck, predictions, and the network they make with a staged backbone."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn

from search_spaces.families.detection import BOX_SIDES
from search_spaces.modules import ConvBn, Pyramid, initialise_convolutions

CLASS_PRIOR = 0.01
"""Probability of every class before training (focal loss, Lin et al. 2017, https://arxiv.org/abs/1708.02002)."""
FIRST_DISTANCE = 2.0
"""Cells from a cell's centre to each side of its box before training."""
PREDICTION_STD = 0.01
"""Standard deviation of the initial weights of the predictions (Lin et al. 2017): the biases decide at first."""


class Merge(nn.Module):
    """`(b, in, h, w)` and the coarser `(b, out, h/2, w/2)` -> `(b, out, h, w)`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lateral = ConvBn(in_channels, out_channels)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        merged: Tensor = self.lateral(fine) + nn.functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        return merged


class Down(nn.Module):
    """`(b, channels, h, w)` and the coarser `(b, channels, h/2, w/2)` -> `(b, channels, h/2, w/2)`."""

    def __init__(self, channels: int, kernel: int, *, depthwise: bool, activation: str) -> None:
        super().__init__()
        self.body = (
            nn.Sequential(
                ConvBn(channels, channels, kernel, 2, groups=channels, activation=activation),
                ConvBn(channels, channels),
            )
            if depthwise
            else ConvBn(channels, channels, kernel, 2)
        )

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        out: Tensor = self.body(fine) + coarse
        return out


class Predict(nn.Module):
    """Maps `(b, channels, h, w)` for boxes and for classes -> `(b, h * w, 4 + classes)`, row-major."""

    initial: Mapping[str, tuple[float, float]] = MappingProxyType(
        {
            "box.weight": (0.0, PREDICTION_STD),
            "box.bias": (math.log(math.expm1(FIRST_DISTANCE)), 0.0),  # the inverse of softplus
            "logits.weight": (0.0, PREDICTION_STD),
            "logits.bias": (-math.log((1 - CLASS_PRIOR) / CLASS_PRIOR), 0.0),
        }
    )
    """Mean and standard deviation of the weights before training: every class improbable, boxes some cells wide."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.box = nn.Conv2d(channels, BOX_SIDES, 1)
        self.logits = nn.Conv2d(channels, num_classes, 1)

    def initialise(self) -> None:
        """Draw the weights as `initial` says, in place."""
        for name, (mean, std) in self.initial.items():
            nn.init.normal_(self.get_parameter(name), mean, std)

    def forward(self, boxes: Tensor, classes: Tensor) -> Tensor:
        maps = torch.cat([self.box(boxes), self.logits(classes)], dim=1)
        return maps.reshape(*maps.shape[:2], -1).transpose(1, 2)  # `flatten` would leave shape operators in ONNX files


class DetectionNetwork(Pyramid):
    """Backbone, neck and a decoupled head per level: float32 `(b, 3, r, r)` -> raw `(b, anchors, 4 + classes)`.

    Levels have strides 8, 16 and 32; anchors are their cells, finest level first, row-major. The first four numbers t
    are for the left, top, right and bottom side: `stride * softplus(t)` pixels from the cell's centre. The others are
    class logits (a sigmoid each).
    """

    head_kind = "anchor-free"
    """Kind of head, by which `raw` is decoded."""

    def __init__(
        self, stem: nn.Module, stages: Sequence[nn.Module], *, laterals: Sequence[nn.Module],
        tops: Sequence[nn.Module], downs: Sequence[nn.Module], bottoms: Sequence[nn.Module],
        class_towers: Sequence[nn.Module], box_towers: Sequence[nn.Module], predictions: Sequence[nn.Module],
    ) -> None:  # fmt: skip
        """One module per level, finest first. `downs` and `bottoms` lead to all levels but the finest, and are empty
        where the neck goes from coarse to fine only."""
        super().__init__(stem, stages)
        self.laterals = nn.ModuleList(laterals)
        self.tops = nn.ModuleList(tops)
        self.downs = nn.ModuleList(downs)
        self.bottoms = nn.ModuleList(bottoms)
        self.class_towers = nn.ModuleList(class_towers)
        self.box_towers = nn.ModuleList(box_towers)
        self.predictions = nn.ModuleList(predictions)
        initialise_convolutions(self)
        for module in self.modules():
            if isinstance(module, Predict):
                module.initialise()

    def neck(self, pyramid: Sequence[Tensor]) -> list[Tensor]:
        """The backbone's levels, finest first -> as many maps of the neck's width and the same sizes."""
        *finer, coarsest = range(len(pyramid))
        maps = [self.tops[coarsest](self.laterals[coarsest](pyramid[coarsest]))]
        for level in reversed(finer):
            maps.insert(0, self.tops[level](self.laterals[level](pyramid[level], maps[0])))
        for level, (down, bottom) in enumerate(zip(self.downs, self.bottoms, strict=True), start=1):
            maps[level] = bottom(down(maps[level - 1], maps[level]))
        return maps

    def forward(self, x: Tensor) -> Tensor:
        heads = zip(self.box_towers, self.class_towers, self.predictions, strict=True)
        levels = zip(self.neck(self.features(x)), heads, strict=True)
        return torch.cat([predict(box(level), classes(level)) for level, (box, classes, predict) in levels], dim=1)
