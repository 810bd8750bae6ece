"""The modules of a one-stage pose network: a detector whose levels have a third tower, which says where points are."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn

from search_spaces.detection_network import PREDICTION_STD, DetectionNetwork, Predict
from search_spaces.families.pose import POINT_VALUES
from search_spaces.modules import initialise_convolutions


class PredictPose(Predict):
    """Maps for boxes, scores and points -> `(b, h * w, 5 + 3 * points)`, row-major."""

    initial: Mapping[str, tuple[float, float]] = MappingProxyType(
        {**Predict.initial, "points.weight": (0.0, PREDICTION_STD), "points.bias": (0.0, 0.0)}
    )
    """Before training every point lies at its cell's centre, and is as likely there as not."""

    def __init__(self, channels: int, point_channels: int, points: int) -> None:
        """`channels` of the maps for boxes and scores, `point_channels` of the one for `points`."""
        super().__init__(channels, 1)
        self.points = nn.Conv2d(point_channels, POINT_VALUES * points, 1)

    def forward(self, boxes: Tensor, classes: Tensor, points: Tensor) -> Tensor:  # type: ignore[override]  # a third map
        maps = torch.cat([self.box(boxes), self.logits(classes), self.points(points)], dim=1)
        return maps.reshape(*maps.shape[:2], -1).transpose(1, 2)


class PoseNetwork(DetectionNetwork):
    """Backbone, neck and three towers per level: float32 `(b, 3, r, r)` -> raw `(b, anchors, 5 + 3 * points)`.

    The first five numbers are those of a `DetectionNetwork` with one class. Three more for each point are x and y,
    `2 * stride * t` pixels from the cell's centre, and the logit of its confidence.
    """

    head_kind = "anchor-free-pose"

    def __init__(
        self, stem: nn.Module, stages: Sequence[nn.Module], *, pose_towers: Sequence[nn.Module],
        **parts: Sequence[nn.Module],
    ) -> None:  # fmt: skip
        """`pose_towers`: one per level, finest first; `parts`: as a `DetectionNetwork` takes them."""
        super().__init__(stem, stages, **parts)
        self.pose_towers = nn.ModuleList(pose_towers)
        initialise_convolutions(self.pose_towers)

    def forward(self, x: Tensor) -> Tensor:
        towers = zip(self.box_towers, self.class_towers, self.pose_towers, strict=True)
        levels = zip(self.neck(self.features(x)), towers, self.predictions, strict=True)
        return torch.cat([predict(*(tower(level) for tower in three)) for level, three, predict in levels], dim=1)
