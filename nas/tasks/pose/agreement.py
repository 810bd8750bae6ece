"""Agreement of two outputs of one network on the poses they show: torch and an exported file, or two runtimes."""

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.agreement import MOST_SHOWN, SAME_IOU, SAME_PX, SCORE_SLACK, SHOWN_IOU
from nas.tasks.detection.geometry import area, pairwise_iou
from nas.tasks.pose.data.skeleton import ASSUMED_SIGMA
from nas.tasks.pose.data.values import AREA_OF_BOX
from nas.tasks.pose.evaluate import SHOWN_SCORE, decoded, poses_of
from nas.tasks.pose.oks import similarity

SAME_OKS = 0.95
"""Least similarity of two poses that are the same; of points whose exactness is not known."""
SHOWN_POINT = 0.5
"""Least confidence of a point that people are shown."""

Decoded = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


def agreement(got: NDArray[np.float32], expected: NDArray[np.float32], *, resolution: int) -> float:
    """Share of images where each pose of one raw output (n, A, 5 + 3 * K) has a partner in the other, and the reverse.

    A partner's box overlaps by more than 0.95 or has the same sides, and the points that are shown lie where its own
    do. It is looked for before suppression: of two boxes with equal scores rounding decides which one stays.
    """
    one, other = _matched(got, expected, resolution), _matched(expected, got, resolution)
    return float(np.mean([a and b for a, b in zip(one, other, strict=True)]))


def _matched(these: NDArray[np.float32], others: NDArray[np.float32], resolution: int) -> list[bool]:
    """For each image, whether every pose of `these` has a partner in `others`."""
    shown = poses_of(these, resolution, SHOWN_SCORE, iou=SHOWN_IOU, most=MOST_SHOWN)
    found = []
    for poses, boxes, scores, points in zip(shown, *decoded(others, resolution), strict=True):
        possible = scores[:, 0] > SHOWN_SCORE - SCORE_SLACK
        boxes, points = boxes[possible], points[possible]
        same_box = np.abs(poses.xyxy[:, None] - boxes).max(axis=-1) < SAME_PX
        same_box |= pairwise_iou(poses.xyxy, boxes) > SAME_IOU
        visible = poses.points[..., 2] > SHOWN_POINT
        truth = np.concatenate([poses.points[..., :2], visible[..., None]], axis=-1)[:, None]
        sigmas = np.full(points.shape[1], ASSUMED_SIGMA, np.float32)
        size = np.maximum(AREA_OF_BOX * area(poses.xyxy), 1.0)[:, None]
        near = similarity(points[None, ..., :2], truth, size, sigmas) > SAME_OKS
        found.append(bool((same_box & near).any(axis=1).all()))
    return found
