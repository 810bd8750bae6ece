"""From raw outputs to boxes and scores, numpy alone; their source is also written into bundles' `run.py`.

Dimensions in docstrings: A predictions of an image, c classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

Decoder = Callable[[Floats, Floats, Floats, int, Sequence[float]], tuple[Floats, Floats]]
"""`(raw, centres, sizes, side, weights)` -> boxes (..., A, 4) float32 in pixels, cut at the image's edges, and scores
(..., A, c) float32 in [0, 1].

raw: (..., A, d) float32. centres, sizes: (A, 2) float32, pixels, see `nas.tasks.detection.anchors.anchors_of`. side:
rows and columns of the image. weights: what offsets were multiplied by in training, for kinds that have them.
"""

LARGEST_GROWTH = math.log(1000 / 16)
"""Logarithms of box sizes relative to the anchor's are cut here, as torchvision does."""


def boxes_from_raw(t: Floats, centres: Floats, strides: Floats) -> Floats:
    """(..., A, 4) raw left, top, right, bottom -> (..., A, 4) boxes; `stride * softplus(t)` is the distance."""
    with np.errstate(over="ignore", invalid="ignore"):
        distances = (np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))) * strides[:, None]
        return np.concatenate([centres - distances[..., :2], centres + distances[..., 2:]], axis=-1)


def moved_anchors(offsets: Floats, centres: Floats, sizes: Floats, side: int, weights: Sequence[float]) -> Floats:
    """Anchor boxes moved and resized by `offsets` (..., A, 4), cut at the image (Girshick et al. 2014, appendix C)."""
    relative = offsets / np.asarray(weights, dtype=np.float32)
    middles = relative[..., :2] * sizes + centres
    halves = np.exp(np.minimum(relative[..., 2:], np.float32(LARGEST_GROWTH))) * sizes / 2
    boxes: Floats = np.clip(np.concatenate([middles - halves, middles + halves], axis=-1), 0, side)
    return boxes


def sigmoid(logits: Floats) -> Floats:
    """1 / (1 + exp(-logits)); 0 where the logit is very negative."""
    with np.errstate(over="ignore"):
        scores: Floats = np.reciprocal(1 + np.exp(-logits))
    return scores


def decode_anchor_free(
    raw: Floats, centres: Floats, sizes: Floats, side: int, weights: Sequence[float]
) -> tuple[Floats, Floats]:
    """Distances from cell centres, in strides, and a sigmoid for each class."""
    boxes = np.clip(boxes_from_raw(raw[..., :4], centres, sizes[:, 0]), 0, side)
    return boxes, 0.5 * (1 + np.tanh(0.5 * raw[..., 4:]))


def decode_ssd(
    raw: Floats, centres: Floats, sizes: Floats, side: int, weights: Sequence[float]
) -> tuple[Floats, Floats]:
    """Offsets to default boxes, softmax with a background class first."""
    logits = raw[..., 4:] - raw[..., 4:].max(axis=-1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(axis=-1, keepdims=True)
    return moved_anchors(raw[..., :4], centres, sizes, side, weights), shares[..., 1:]


def decode_retinanet(
    raw: Floats, centres: Floats, sizes: Floats, side: int, weights: Sequence[float]
) -> tuple[Floats, Floats]:
    """Offsets to anchor boxes, a sigmoid for each class."""
    return moved_anchors(raw[..., :4], centres, sizes, side, weights), sigmoid(raw[..., 4:])


def decode_fcos(
    raw: Floats, centres: Floats, sizes: Floats, side: int, weights: Sequence[float]
) -> tuple[Floats, Floats]:
    """Distances from points, sigmoids, and centre-ness last."""
    corners = [centres - sizes * raw[..., :2], centres + sizes * raw[..., 2:4]]
    boxes = np.clip(np.concatenate(corners, axis=-1), 0, side)
    return boxes, np.sqrt(sigmoid(raw[..., 4:-1]) * sigmoid(raw[..., -1:]))


DECODERS: Mapping[str, Decoder] = {
    "anchor-free": decode_anchor_free,
    "ssd": decode_ssd,
    "retinanet": decode_retinanet,
    "fcos": decode_fcos,
}
"""Decoders by the kind of raw output."""
