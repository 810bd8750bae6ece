"""Finding poses in an image with numpy and Pillow alone: in `run.py` of a bundle, and in this package."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.anchors import Level, anchors_of
from nas.tasks.pose.decoding import FoundPoses, decode_poses, found_poses


def find_poses(output: NDArray[np.float32], rules: Mapping[str, Any], size: int) -> FoundPoses:
    """The poses of a raw output (A, 5 + 3 * K), in pixels of the input of `size` rows, by `postprocess.json`."""
    centres, sizes = anchors_of([Level(**level) for level in rules["levels"]])
    boxes, scores, points = decode_poses(output, centres, sizes, size)
    return found_poses(boxes, scores, points, rules["score"], rules["iou"], rules["most"], rules["candidates"])


def described_poses(
    found: FoundPoses, factors: NDArray[np.float64], size: Sequence[int], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Label, score, box (x0, y0, x1, y1) and points (x, y, confidence) of each pose, in pixels of an image of `size`,
    its width and height; points may lie outside it."""
    boxes = np.clip(found.xyxy * factors, 0, np.tile(size, 2))
    points = found.points * np.append(factors[:2], 1.0)
    return [
        {
            "label": labels[0],
            "score": float(score),
            "xyxy": [float(edge) for edge in box],
            "points": [[float(value) for value in point] for point in own],
        }
        for score, box, own in zip(found.scores, boxes, points, strict=True)
    ]


def limbs_shown(
    points: Sequence[Sequence[float]], limbs: Sequence[Sequence[int]], least: float
) -> list[tuple[float, float, float, float]]:
    """The lines (x0, y0, x1, y1) between points that are at least so sure."""
    return [
        (points[a][0], points[a][1], points[b][0], points[b][1])
        for a, b in limbs
        if points[a][2] >= least and points[b][2] >= least
    ]
