"""What pose networks promise beyond the contract of every space."""

import numpy as np
import pytest
import torch

from search_spaces import load_search_space
from search_spaces.pose_network import PoseNetwork, PredictPose


def network_of(points: int, **options: str | int) -> PoseNetwork:
    space = load_search_space("pose")
    arch = space.replace(space.anchors[0], resolution=128, neck__width=32, **options)
    torch.manual_seed(0)
    network = space.build(arch, (1, points))
    assert isinstance(network, PoseNetwork)
    return network


def test_there_are_more_than_10_to_the_20() -> None:
    assert load_search_space("pose").size > 10**20


@pytest.mark.parametrize("points", [1, 17])
def test_before_training_points_are_at_their_cells(points: int) -> None:
    with torch.no_grad():
        raw = network_of(points).eval()(torch.randn(2, 3, 128, 128))
    assert raw.shape == (2, 16 * 16 + 8 * 8 + 4 * 4, 5 + 3 * points)
    assert raw[..., 4].sigmoid().mean() == pytest.approx(0.01, rel=0.2)
    assert raw[..., 5:].abs().mean() < 0.2


def test_a_detector_is_inside() -> None:
    """The blocks are those of `detect`, so that one device profile serves both."""
    pose, detect = load_search_space("pose"), load_search_space("detect")
    rows = pose.restrict("resolution", detect.table.resolutions).sample(30, np.random.default_rng(0))
    for row in rows:
        arch = pose.architecture(row)
        options = {k: v for k, v in pose.parameters(arch).items() if not k.startswith("pose.")}
        detector = detect.from_json({"space": "detect", "decisions": options})
        blocks, inside = pose.blocks(arch, (1, 17)), detect.blocks(detector, (1,))
        count = len(inside) - 3
        assert blocks[:count] == inside[:count]
        assert {block.kind for block in blocks[-3:]} == {"predict_pose"}
        assert blocks[-1].out_channels == 5 + 3 * 17


def test_the_third_tower_may_be_wider_than_the_neck() -> None:
    network = network_of(5, pose__width_percent=150, pose__depth=2)
    (prediction, *_) = network.predictions
    assert isinstance(prediction, PredictPose)
    assert (prediction.box.in_channels, prediction.points.in_channels) == (32, 48)
    assert len(network.pose_towers[0]) == 2


def test_points_come_one_after_the_other() -> None:
    network = network_of(2)
    for prediction in network.predictions:
        assert isinstance(prediction, PredictPose)
        assert prediction.points.bias is not None
        torch.nn.init.zeros_(prediction.points.weight)
        prediction.points.bias.data = torch.arange(6.0)
    raw = network(torch.randn(1, 3, 128, 128))
    assert torch.equal(raw[0, :, 5:], torch.arange(6.0).expand(336, 6))


def test_sizes_of_answers() -> None:
    space = load_search_space("pose")
    arch = space.anchors[0]
    assert space.signature(arch, (1, 4)).output.shape[1] == 17
    assert space.signature(arch, (10,)).output.shape[1] == 56, "built to be timed: COCO's points"
    with pytest.raises(ValueError, match=r"has the size \(1, points\), got \(2, 17\)"):
        space.signature(arch, (2, 17))
