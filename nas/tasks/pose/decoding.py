"""From raw outputs to the poses found, numpy alone; the source is also written into bundles' `run.py`.

Dimensions in docstrings: A cells of an image, K points, k poses found.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.decoding import decode_anchor_free
from nas.tasks.detection.postprocess import Found, suppress

REACH = 2.0
"""Strides from a cell's centre that a raw value of 1 puts a point away from it (YOLOv8-pose, Jocher et al. 2023)."""
BOX_VALUES = 5
"""Numbers of a cell before those of its points: four sides and the score."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundPoses(Found):
    """The objects found in one image with their points, best score first."""

    points: NDArray[np.float32]
    """(k, K, 3) float32: x and y in pixels, and a confidence in [0, 1] that it can be told where the point is. Points
    may lie outside the box and the image."""


def decode_poses(
    raw: NDArray[np.float32], centres: NDArray[np.float32], sizes: NDArray[np.float32], side: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Boxes (..., A, 4) in pixels, scores (..., A, 1) and points (..., A, K, 3) of raw outputs (..., A, 5 + 3 * K).

    Args:
        raw: float32.
        centres: (A, 2) of the cells, pixels.
        sizes: (A, 2) strides of the cells, pixels.
        side: rows and columns of the image, where boxes are cut.
    """
    boxes, scores = decode_anchor_free(raw[..., :BOX_VALUES], centres, sizes, side, ())
    t = raw[..., BOX_VALUES:].reshape(*raw.shape[:-1], -1, 3)
    places = centres[:, None] + np.float32(REACH) * sizes[:, None] * t[..., :2]
    confidence = 0.5 * (1 + np.tanh(0.5 * t[..., 2:]))
    return boxes, scores, np.concatenate([places, confidence], axis=-1)


def found_poses(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    points: NDArray[np.float32],
    score: float,
    iou: float,
    most: int,
    candidates: int,
) -> FoundPoses:
    """The poses in one image: of two whose boxes overlap by more than `iou` the one with the lower score is dropped.

    Args:
        boxes: (A, 4) float32, pixels.
        scores: (A, 1) float32 in [0, 1].
        points: (A, K, 3) float32.
        score: least score, exclusive.
        iou: largest overlap (intersection over union) of two boxes.
        most: most poses.
        candidates: best scores that are looked at.
    """
    finite = np.isfinite(boxes).all(axis=1) & np.isfinite(points).all(axis=(1, 2))
    cells = np.flatnonzero((scores[:, 0] > score) & finite)  # false for NaN
    cells = cells[np.argsort(-scores[cells, 0], kind="stable")][:candidates]
    cells = cells[suppress(boxes[cells], iou)][:most]
    return FoundPoses(boxes[cells], np.zeros(len(cells), np.int64), scores[cells, 0], points[cells])
