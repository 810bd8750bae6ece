"""Finding objects in an image with numpy and Pillow alone: in `run.py` of a bundle, and in this package.

Dimensions in docstrings: A predictions of an image, c classes, k objects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nas.data.portable import normalised
from nas.tasks.detection.anchors import Level, anchors_of
from nas.tasks.detection.decoding import DECODERS
from nas.tasks.detection.postprocess import Found, detections


def preprocess(image: Image.Image, how: Mapping[str, Any]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """(1, 3, r, r) float32 of an RGB image, and by what boxes (4,) are multiplied to lie in it.

    The picture lies at the top left of a grey square: boxes are scaled, never shifted. `how` is `preprocess.json`.
    """
    size = how["resolution"]
    width, height = (max(1, round(side * (size / max(image.size)))) for side in image.size)
    square = Image.new("RGB", (size, size), (how["padding"],) * 3)
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR))
    factors = np.tile(np.divide(image.size, (width, height)), 2)
    return normalised(np.asarray(square)[None], how["mean"], how["std"]), factors


def find(boxes: NDArray[np.float32], scores: NDArray[np.float32], rules: Mapping[str, Any]) -> Found:
    """The objects among boxes (A, 4) with scores (A, c), by the thresholds of `postprocess.json`."""
    (found,) = detections(
        boxes[None], scores[None],
        score=rules["score"], iou=rules["iou"], most=rules["most"], candidates=rules["candidates"],
    )  # fmt: skip
    return found


def described(
    found: Found, factors: NDArray[np.float64], size: Sequence[int], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Label, score and box (x0, y0, x1, y1 in pixels of an image of `size`, its width and height) of each object."""
    boxes = np.clip(found.xyxy * factors, 0, np.tile(size, 2))
    return [
        {"label": labels[label], "score": float(score), "xyxy": [float(edge) for edge in box]}
        for label, score, box in zip(found.classes, found.scores, boxes, strict=True)
    ]


def raw_boxes(
    output: NDArray[np.float32], rules: Mapping[str, Any], size: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Boxes (A, 4) in pixels of the input and scores (A, c) of a raw output (A, d), as `postprocess.json` says."""
    centres, sizes = anchors_of([Level(**level) for level in rules["levels"]])
    weights = rules.get("weights", (1.0,) * 4)
    return DECODERS[rules["head_kind"]](output, centres, sizes, size, weights)
