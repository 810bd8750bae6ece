"""The loss of pose networks and the metric agree: what lowers the one raises the other."""

import numpy as np
import pytest
import torch

from nas.tasks.detection.geometry import cells_of
from nas.tasks.pose.data import Poses
from nas.tasks.pose.data.values import no_poses
from nas.tasks.pose.distill import pose_distillation_loss
from nas.tasks.pose.evaluate import poses_of
from nas.tasks.pose.loss import PoseLoss, PoseTargets
from nas.tasks.pose.metrics import oks_precision
from tests.nas.tasks.pose.scenes import SIZE, random_poses

STEPS = 60


def fresh(images: int, points: int) -> torch.Tensor:
    """Raw outputs as those of a network before its training."""
    generator = torch.Generator().manual_seed(0)
    raw = 0.01 * torch.randn(images, len(cells_of(SIZE)), 5 + 3 * points, generator=generator)
    raw[..., :4] += 1.85
    raw[..., 4] -= 4.6
    return raw.requires_grad_()


def learn(raw: torch.Tensor, truth: list[Poses], loss: PoseLoss, steps: int = STEPS) -> list[float]:
    optimizer, values = torch.optim.Adam([raw], lr=0.1), []
    for step in range(steps):
        value = loss(raw, PoseTargets.of(truth, step / steps, "cpu"), SIZE)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    return values


@pytest.mark.parametrize("points", [1, 5, 17, 24])
def test_raw_outputs_learn_random_poses(points: int) -> None:
    rng = np.random.default_rng(points)
    truth, sigmas = [random_poses(rng, points) for _ in range(3)], [0.05] * points
    raw = fresh(3, points)
    before = oks_precision(poses_of(raw.detach().numpy(), SIZE, 0.001), truth, sigmas)
    values = learn(raw, truth, PoseLoss(torch.tensor(sigmas)))
    after = oks_precision(poses_of(raw.detach().numpy(), SIZE, 0.01), truth, sigmas)
    assert before.map50_95 < 0.1
    assert after.map50_95 > 0.99
    assert values[-1] < 0.1 * values[0]


def test_confidences_say_which_points_are_labelled() -> None:
    truth = [random_poses(np.random.default_rng(3), 5)]
    raw = fresh(1, 5)
    learn(raw, truth, PoseLoss(torch.full((5,), 0.05)))
    (found,) = poses_of(raw.detach().numpy(), SIZE, 0.3)
    order = [int(np.abs(found.xyxy - box).sum(axis=1).argmin()) for box in truth[0].xyxy]
    assert np.array_equal(found.points[order, :, 2] > 0.5, truth[0].points[..., 2] > 0)


@pytest.mark.parametrize("progress", [0.0, 1.0])
def test_objects_without_points_are_learnt_as_boxes(progress: float) -> None:
    poses = random_poses(np.random.default_rng(0), 4)
    bare = Poses(poses.xyxy, poses.classes, poses.crowd, poses.points * np.float32([1, 1, 0]), poses.area)
    raw = fresh(1, 4)
    PoseLoss(torch.full((4,), 0.05))(raw, PoseTargets.of([bare], progress, "cpu"), SIZE).backward()
    assert raw.grad is not None
    assert (raw.grad[..., :4] != 0).any(), "their boxes are"
    assert (raw.grad[..., 5:] == 0).all(), "nobody says where their points are"


def test_far_points_are_pulled_at_first() -> None:
    """1 - OKS alone has no gradient for them."""
    poses = random_poses(np.random.default_rng(1), 2, most=1)
    far = Poses(poses.xyxy, poses.classes, poses.crowd, np.float32([[[4, 4, 2], [120, 4, 2]]]), poses.area)
    loss = PoseLoss(torch.full((2,), 0.01))
    gradients = []
    for progress in (0.0, 1.0):
        raw = fresh(1, 2)
        loss(raw, PoseTargets.of([far], progress, "cpu"), SIZE).backward()
        assert raw.grad is not None
        gradients.append(float(raw.grad[..., [5, 6, 8, 9]].abs().max()))
    assert gradients[0] > 0.1
    assert gradients[1] < 1e-6


def test_images_without_objects_and_outputs_of_any_size_have_a_finite_loss() -> None:
    loss = PoseLoss(torch.full((3,), 0.05))
    truth = [random_poses(np.random.default_rng(2), 3), no_poses(3)]
    for scale in (1.0, 1e6):
        raw = (fresh(2, 3).detach() * scale).requires_grad_()
        value = loss(raw, PoseTargets.of(truth, 0.5, "cpu"), SIZE)
        value.backward()
        assert torch.isfinite(value)
        assert raw.grad is not None
        assert torch.isfinite(raw.grad).all()
    empty = loss(fresh(1, 3), PoseTargets.of([no_poses(3)], 0.5, "cpu"), SIZE)
    assert torch.isfinite(empty)
    with pytest.raises(ValueError, match="is not of 1 images, 336 cells and 14 values"):
        loss(fresh(1, 4), PoseTargets.of([no_poses(3)], 0.0, "cpu"), SIZE)


def test_a_network_is_at_no_distance_from_itself() -> None:
    raw = fresh(2, 3)
    assert float(pose_distillation_loss(raw.detach(), raw, SIZE)) == pytest.approx(0, abs=1e-4)
    other = raw.detach().clone()
    other[..., 5] += 1.0
    assert float(pose_distillation_loss(other, raw, SIZE)) > 0.05
