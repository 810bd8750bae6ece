"""Agreement of two outputs of one network on the objects they show: torch and an exported file, or two runtimes."""

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.geometry import pairwise_iou
from nas.tasks.detection.heads import HEADS
from nas.tasks.detection.postprocess import Found, detections

SHOWN_SCORE = 0.25
"""Least score of an object that people are shown, and that is compared here; average precision counts more."""
SHOWN_IOU = 0.6
"""Largest overlap of two objects of one class."""
MOST_SHOWN = 300

SAME_IOU = 0.95
SAME_PX = 0.1
"""Boxes whose sides are as near as this are the same, also where they have next to no area and overlap means little."""
SCORE_SLACK = 0.01
"""A score that is just above the threshold in one output may be just below it in the other."""


def shown(boxes: NDArray[np.float32], scores: NDArray[np.float32]) -> list[Found]:
    """The objects that people are shown, of decoded (n, A, 4) boxes and (n, A, c) scores."""
    return detections(boxes, scores, score=SHOWN_SCORE, iou=SHOWN_IOU, most=MOST_SHOWN)


def agreement(got: NDArray[np.float32], expected: NDArray[np.float32], *, head_kind: str, resolution: int) -> float:
    """Share of images where each object of one raw output (n, A, ...) has a partner in the other, and the reverse.

    A partner is of the same class, overlaps by more than 0.95 or has the same sides, and is looked for before
    suppression: of two boxes with equal scores rounding decides which one stays. Partners are one to one, since objects
    of one output do not overlap so much.
    """
    head = HEADS[head_kind]
    first, second = head.decode(got, resolution), head.decode(expected, resolution)
    return float(np.mean([a and b for a, b in zip(_matched(first, second), _matched(second, first), strict=True)]))


Decoded = tuple[NDArray[np.float32], NDArray[np.float32]]


def _matched(these: Decoded, others: Decoded) -> list[bool]:
    """For each image, whether every object of `these` has a partner in `others`."""
    return [_has_partners(found, boxes, scores) for found, boxes, scores in zip(shown(*these), *others, strict=True)]


def _has_partners(found: Found, boxes: NDArray[np.float32], scores: NDArray[np.float32]) -> bool:
    for label in np.unique(found.classes):
        objects = found.xyxy[found.classes == label]
        candidates = boxes[scores[:, label] > SHOWN_SCORE - SCORE_SLACK]
        same_sides = np.abs(objects[:, None] - candidates).max(axis=-1) < SAME_PX
        if not (same_sides | (pairwise_iou(objects, candidates) > SAME_IOU)).any(axis=1).all():
            return False
    return True
