"""The predictions of a level of a pose network: boxes, the score of the one class, and the points of each cell."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise
from search_spaces.families.detection import BOX_SIDES

if TYPE_CHECKING:
    from torch import nn

POINT_VALUES = 3
"""Channels of a prediction for each point: x, y and whether it can be told where the point is."""
BEFORE_POINTS = BOX_SIDES + 1
"""Channels of a prediction that are no point's: the box's sides, and the score."""


def _point_channels(b: BlockColumns) -> Any:
    """Channels of the map that points are predicted from: wider than that of boxes by the block's expansion."""
    return np.rint(b.in_channels * b.expansion).astype(np.int64)


def _layers(b: BlockColumns) -> Sequence[Conv]:
    return [
        Conv(b.in_channels, BOX_SIDES, height=b.height, width=b.width),
        Conv(b.in_channels, 1, height=b.height, width=b.width),
        Conv(_point_channels(b), b.out_channels - BEFORE_POINTS, height=b.height, width=b.width),
    ]


def _elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(arranged=b.outputs)


def _build(spec: BlockSpec) -> "nn.Module":
    from search_spaces.pose_network import PredictPose

    points = (spec.out_channels - BEFORE_POINTS) // POINT_VALUES
    return PredictPose(spec.in_channels, round(spec.in_channels * spec.expansion), points)


PREDICT_POSE = BlockFamily("predict_pose", frozenset(), (1.0, 1.0, 1.0), _layers, _elementwise, _build)
"""Boxes, scores and points from three maps, as rows of one table; `out_channels` is 5 + 3 * points, `expansion` the
width of the points' map over that of the others. Its module takes three maps."""
