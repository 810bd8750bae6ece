"""From the boxes and scores of all cells to the objects found: threshold and class-wise suppression. numpy alone.

Dimensions in docstrings: n images, A cells, c classes, k objects found in an image.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.geometry import pairwise_iou

CANDIDATES = 1000
"""Best scores of an image that are looked at, as in detectron2 and torchvision."""

BLOCK = 32
"""Boxes of one step of suppression."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The objects found in one image, best score first."""

    xyxy: NDArray[np.float32]
    """(k, 4) float32, pixels."""
    classes: NDArray[np.int64]
    """(k,) int64."""
    scores: NDArray[np.float32]
    """(k,) float32 in [0, 1]."""

    def __len__(self) -> int:
        return len(self.scores)


NOTHING = Found(np.empty((0, 4), np.float32), np.empty(0, np.int64), np.empty(0, np.float32))


def detections(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    *,
    score: float = 0.05,
    iou: float = 0.6,
    most: int = 300,
    candidates: int = CANDIDATES,
) -> list[Found]:
    """The objects in each image.

    A cell may be an object of several classes. Of two boxes of one class that overlap by more than `iou` the one with
    the lower score is dropped; of equal scores the later one. Scores and boxes that are not finite find nothing.

    Args:
        boxes: (n, A, 4) float32, pixels.
        scores: (n, A, c) float32 in [0, 1].
        score: least score, exclusive.
        iou: largest overlap (intersection over union) of two boxes of one class.
        most: most objects of an image.
        candidates: best scores of an image that are looked at.
    """
    return [of_image(b, s, score, iou, most, candidates) for b, s in zip(boxes, scores, strict=True)]


def suppress(xyxy: NDArray[np.float32], iou: float) -> NDArray[np.int64]:
    """Greedy non-maximum suppression: ascending positions of (k, 4) boxes, best first, that stay."""
    stays = [np.empty(0, dtype=np.int64)]
    left = np.arange(len(xyxy))
    while len(left):
        # Blocks: the best few usually drop most of the others, whose overlaps are then never computed.
        block, others = left[:BLOCK], left[BLOCK:]
        overlapping = pairwise_iou(xyxy[block], xyxy[left]) > iou
        alive = np.ones(len(block), dtype=bool)
        for at in range(len(block)):
            if alive[at]:
                alive[at + 1 :] &= ~overlapping[at, at + 1 : len(block)]
        stays.append(block[alive])
        left = others[~overlapping[alive, len(block) :].any(axis=0)]
    return np.concatenate(stays)


def of_image(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], score: float, iou: float, most: int, candidates: int
) -> Found:
    cells, classes = np.nonzero(scores > score)  # false for NaN
    usable = np.isfinite(boxes[cells]).all(axis=1)
    cells, classes = cells[usable], classes[usable]
    values = scores[cells, classes]
    if len(values) > candidates:  # partition first: sorting everything is slow where hundreds of thousands pass
        kept = values >= np.partition(values, -candidates)[-candidates]
        cells, classes, values = cells[kept], classes[kept], values[kept]
    order = np.argsort(-values, kind="stable")[:candidates]
    cells, classes, values, xyxy = cells[order], classes[order], values[order], boxes[cells[order]]

    # Class by class: overlaps are few then, and no box is shifted by an offset that costs digits.
    members = (np.flatnonzero(classes == label) for label in np.unique(classes))
    stays = np.sort(np.concatenate([m[suppress(xyxy[m], iou)] for m in members] or [np.empty(0, np.int64)]))[:most]
    return Found(xyxy[stays], classes[stays], values[stays])
