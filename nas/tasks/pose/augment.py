"""Augmentation of pose batches: that of detection, with points along.

Points that leave their picture's window are no longer labelled. They are never moved to its edge: nobody has a wrist
there.
"""

from collections.abc import Sequence

import numpy as np

from nas.tasks.detection.augment import BoxAugmenter, Window, boxes_seen
from nas.tasks.detection.data.values import Boxes
from nas.tasks.pose.data.values import Poses, PoseSplit, joined


class PoseAugmenter(BoxAugmenter):
    """Batches of a split's images with their poses, changed at random; see `BoxAugmenter`.

    Args:
        split: the images.
        flip: mirror half of them; the split's skeleton has to say which points change places then.
    """

    def __init__(self, split: PoseSplit, *, flip: bool) -> None:
        super().__init__(split, flip=flip and split.skeleton.mirror is not None)
        self._skeleton = split.skeleton

    def _joined(self, parts: Sequence[Boxes]) -> Poses:
        return joined([part for part in parts if isinstance(part, Poses)])

    def _mirrored(self, boxes: Boxes) -> Poses:
        assert isinstance(boxes, Poses)
        assert self._skeleton.mirror is not None
        return mirrored(boxes, self._split.resolution, self._skeleton.mirror)

    def _seen(self, boxes: Boxes, shown: Window) -> Poses:
        assert isinstance(boxes, Poses)
        xyxy, seen = boxes_seen(boxes.xyxy, shown, self._split.resolution)
        points, area = shown_points(boxes, shown)
        return Poses(xyxy[seen], boxes.classes[seen], boxes.crowd[seen], points[seen], area[seen])


def mirrored(poses: Poses, size: int, mirror: Sequence[int]) -> Poses:
    """The objects of an image of `size` pixels in its mirror image: a left hand becomes a right one."""
    points = poses.points[:, list(mirror)].copy()
    points[..., 0] = size - points[..., 0]
    points[points[..., 2] == 0] = 0
    xyxy = poses.xyxy.copy()
    xyxy[:, [0, 2]] = size - xyxy[:, [2, 0]]
    return Poses(xyxy, poses.classes, poses.crowd, points, poses.area)


def shown_points(poses: Poses, shown: Window) -> tuple[np.ndarray, np.ndarray]:
    """Points (k, K, 3) and areas (k,) of a picture's objects where `shown` is drawn.

    Areas grow and shrink with the picture, and not where it is cut: a person that is seen by half is as large as
    before, and so are the errors of its points.
    """
    factors = np.array([shown.drawn_width / shown.width, shown.drawn_height / shown.height], np.float32)
    start = np.array([shown.left, shown.top], np.float32)
    relative = poses.points[..., :2] - start
    inside = ((relative >= 0) & (relative <= np.array([shown.width, shown.height]))).all(axis=2)
    labelled = inside & (poses.points[..., 2] > 0)
    points = np.zeros_like(poses.points)
    places = relative * factors + np.array([shown.x, shown.y], np.float32)
    points[..., :2] = np.where(labelled[..., None], places, 0)
    points[..., 2] = np.where(labelled, poses.points[..., 2], 0)
    return points, (poses.area * factors.prod()).astype(np.float32)
