"""What can be had without a network: the mean pose of the training objects, put into boxes."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.tasks.floor import Floor
from nas.tasks.pose.data.values import PoseData, PoseSplit
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.metrics import oks_precision

NOTHING = 0.001
"""A mean average precision below which a network finds boxes at best. Where the mean pose is worth nothing either, it
would be enough to find none."""


def mean_pose(split: PoseSplit) -> NDArray[np.float32]:
    """(K, 2) where each point lies on average, in shares of its box; the middle for points that are never labelled."""
    count = len(split.skeleton)
    sums, counts = np.zeros((count, 2)), np.zeros(count)
    for poses in split.boxes:
        start, size = poses.xyxy[:, None, :2], (poses.xyxy[:, 2:] - poses.xyxy[:, :2])[:, None]
        labelled = (poses.points[..., 2] > 0) & ~poses.crowd[:, None]
        sums += (((poses.points[..., :2] - start) / size) * labelled[..., None]).sum(axis=0)
        counts += labelled.sum(axis=0)
    middle = np.full((count, 2), 0.5)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], middle).astype(np.float32)


def posed(boxes: NDArray[np.float32], scores: NDArray[np.float32], pose: NDArray[np.float32]) -> FoundPoses:
    """The pose (K, 2) in each of boxes (k, 4) with scores (k,)."""
    places = boxes[:, None, :2] + pose * (boxes[:, 2:] - boxes[:, :2])[:, None]
    points = np.concatenate([places, np.ones((*places.shape[:2], 1))], axis=2).astype(np.float32)
    return FoundPoses(boxes, np.zeros(len(boxes), np.int64), scores, points)


def in_boxes_found(found: Sequence[FoundPoses], pose: NDArray[np.float32]) -> list[FoundPoses]:
    """What a network found with `pose` in place of its own points."""
    return [posed(these.xyxy, these.scores, pose) for these in found]


def pose_floors(data: PoseData) -> tuple[Floor, ...]:
    """The mean pose of training in the *true* boxes of the other splits: more than can be had without a detector."""
    start = time.perf_counter()
    pose = mean_pose(data.train)
    val, test = (
        oks_precision(in_true_boxes(split, pose), split.boxes, split.skeleton.sigmas).map50_95
        for split in (data.val, data.test)
    )
    seconds = time.perf_counter() - start
    return (
        Floor(name="the mean pose in the true boxes", accuracy=val, test=test, margin=0.0, seconds=seconds),
        Floor(name="finding next to nothing", accuracy=NOTHING, test=None, margin=0.0, seconds=0.0),
    )


def in_true_boxes(split: PoseSplit, pose: NDArray[np.float32]) -> list[FoundPoses]:
    """`pose` in the box of every object that is no crowd."""
    boxes = [truth.xyxy[~truth.crowd] for truth in split.boxes]
    return [posed(these, np.ones(len(these), np.float32), pose) for these in boxes]
