"""The shapes of published pose networks: what comes out, and the published number of weights where there is one."""

import pytest
import torch
from torch import nn

from experiments.pose_shapes import POINTS, YoloNasPoseNShape, YoloV8nPoseShape


@pytest.mark.parametrize(
    ("shape", "values"), [(YoloV8nPoseShape, 64 + 1 + 3 * POINTS), (YoloNasPoseNShape, 68 + 1 + 3 * POINTS)]
)
def test_a_shape_says_something_of_every_cell(shape: type[nn.Module], values: int) -> None:
    with torch.no_grad():
        raw = shape().eval()(torch.zeros(1, 3, 64, 64))
    assert raw.shape == (1, 8 * 8 + 4 * 4 + 2 * 2, values)


def test_the_shape_of_yolov8n_pose_has_its_weights() -> None:
    assert sum(p.numel() for p in YoloV8nPoseShape().parameters()) == pytest.approx(3.3e6, rel=0.01)
