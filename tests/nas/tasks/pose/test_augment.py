"""Points go where their pixels go."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.stick_figures import SKELETON
from nas.tasks.detection.augment import Window
from nas.tasks.pose.augment import PoseAugmenter, mirrored, shown_points
from nas.tasks.pose.data import Poses, PoseSplit
from nas.training.recipe import Crop
from tests.nas.tasks.pose.scenes import random_poses

SIZE = 64


def dotted() -> PoseSplit:
    """Black pictures with three bright dots, which are the first three points of the one object on each; the others
    are not labelled."""
    rng = np.random.default_rng(0)
    images = np.zeros((4, SIZE, SIZE, 3), np.uint8)
    poses = []
    for image in images:
        points = np.zeros((1, len(SKELETON), 3), np.float32)
        for point, (x, y) in enumerate(rng.integers(12, SIZE - 12, (3, 2))):
            image[y - 2 : y + 2, x - 2 : x + 2, point] = 255
            points[0, point] = x, y, 2
        box = np.float32([[4, 4, SIZE - 4, SIZE - 4]])
        poses.append(Poses(box, np.zeros(1, np.int64), np.zeros(1, bool), points, np.float32([1500])))
    return PoseSplit(images, tuple(poses), np.full((4, 2), SIZE), skeleton=SKELETON)


@pytest.mark.parametrize("crop", ["none", "light", "mosaic"])
def test_points_stay_on_their_dots(crop: Crop) -> None:
    """Mirrored, the dot of the left eye is that of the right one."""
    split = dotted()
    augmenter = PoseAugmenter(split, flip=True)
    images, found = augmenter.batch(torch.arange(4).repeat(8), torch.Generator().manual_seed(0), crop)
    seen, swapped = 0, 0
    for image, poses in zip(images.float().numpy(), found, strict=True):
        assert isinstance(poses, Poses)
        for points in poses.points:
            for point in np.flatnonzero(points[:, 2] > 0):
                x, y = points[point, :2].round().astype(int)
                around = image[max(0, y - 2) : y + 2, max(0, x - 2) : x + 2].reshape(-1, 3).max(axis=0)
                colour = {0: 0, 1: 1, 2: 2}[int(point)]
                brightest = int(around.argmax())
                assert around.max() > 60, (crop, point)
                swapped += brightest != colour
                assert brightest == colour or {brightest, colour} == {1, 2}
                seen += 1
    assert seen > 40
    assert bool(swapped) == (crop != "none"), "half of the pictures are mirrored"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_a_mirror_image_of_a_mirror_image_is_the_image(seed: int) -> None:
    poses = random_poses(np.random.default_rng(seed), len(SKELETON))
    assert SKELETON.mirror is not None
    once = mirrored(poses, 128, SKELETON.mirror)
    assert (once.points[..., 2] > 0).sum() == (poses.points[..., 2] > 0).sum()
    twice = mirrored(once, 128, SKELETON.mirror)
    np.testing.assert_allclose(twice.xyxy, poses.xyxy, atol=1e-3)
    labelled = poses.points[..., 2] > 0
    np.testing.assert_allclose(twice.points[labelled], poses.points[labelled], atol=1e-3)
    assert (twice.points[~labelled] == 0).all()


def test_points_outside_the_window_are_not_labelled() -> None:
    points = np.float32([[[10, 10, 2], [50, 10, 1], [0, 0, 0]]])
    poses = Poses(np.float32([[0, 0, 60, 20]]), np.zeros(1, np.int64), np.zeros(1, bool), points, np.float32([100]))
    shown, area = shown_points(poses, Window(0, 0, 32, 32, 8, 4, 64, 64))
    assert shown[0].tolist() == [[24, 28, 2], [0, 0, 0], [0, 0, 0]]
    assert area.tolist() == [400]


def test_without_a_mirror_nothing_is_mirrored() -> None:
    split = dotted()
    unknown = PoseSplit(
        split.images,
        split.boxes,
        split.extents,
        skeleton=type(SKELETON)(SKELETON.names, SKELETON.limbs, SKELETON.sigmas, None),
    )
    one, other = (
        PoseAugmenter(unknown, flip=flip).batch(torch.arange(4), torch.Generator().manual_seed(1), "light")[0]
        for flip in (True, False)
    )
    assert torch.equal(one, other)
