"""Boxes at random, and raw outputs that say exactly them."""

import numpy as np
import torch
from numpy.typing import NDArray

from nas.tasks.detection.data import Boxes
from nas.tasks.detection.geometry import Cells, cells_of, pairwise_iou
from nas.tasks.detection.heads import BoxTargets


def raw_from_boxes(xyxy: NDArray[np.float32], cells: Cells, *, least: float = 1e-3) -> NDArray[np.float32]:
    """(..., A, 4) boxes, one for each cell -> (..., A, 4) raw outputs that `boxes_from_raw` reads as these boxes.

    A cell can only express boxes around its centre: shorter and negative distances become `least` strides.
    """
    distances = np.concatenate([cells.centres - xyxy[..., :2], xyxy[..., 2:] - cells.centres], axis=-1)
    d = np.maximum(distances / cells.strides[:, None], least).astype(np.float64)
    return np.asarray(d + np.log(-np.expm1(-d)), dtype=np.float32)  # inverse of softplus


def boxes(xyxy: object, classes: object = None, crowd: object = None) -> Boxes:
    edges = np.asarray(xyxy, dtype=np.float32).reshape(-1, 4)
    k = len(edges)
    labels = np.zeros(k) if classes is None else classes
    return Boxes(
        edges, np.asarray(labels, dtype=np.int64), np.zeros(k, bool) if crowd is None else np.asarray(crowd, dtype=bool)
    )


def apart(rng: np.random.Generator, count: int, resolution: int, classes: int, least: float = 16.0) -> Boxes:
    """Up to `count` boxes of at least `least` pixels a side that overlap little."""
    kept = np.empty((0, 4), np.float32)
    for _ in range(count):
        size = rng.uniform(least, resolution * 0.7, 2)
        corner = rng.uniform(0, resolution - size)
        box = np.concatenate([corner, corner + size]).astype(np.float32)[None]
        if not len(kept) or pairwise_iou(box, kept).max() < 0.4:
            kept = np.concatenate([kept, box])
    return boxes(kept, rng.integers(0, classes, len(kept)))


def targets(of: Boxes) -> BoxTargets:
    return BoxTargets.of(of)


def nothing() -> BoxTargets:
    return BoxTargets.of(boxes([]))


def raw_saying(truth: Boxes, resolution: int, classes: int) -> NDArray[np.float32]:
    """(A, 4 + c): each box by the free cell whose centre is nearest to the box's."""
    cells = cells_of(resolution)
    raw = np.full((len(cells), 4 + classes), -12, np.float32)
    for xyxy, label in zip(truth.xyxy, truth.classes, strict=True):
        distance = np.square(cells.centres - (xyxy[:2] + xyxy[2:]) / 2).sum(axis=1)
        free = raw[:, 4:].max(axis=1) < 0
        at = int(np.where(free, distance, np.inf).argmin())
        raw[at, :4] = raw_from_boxes(np.broadcast_to(xyxy, (len(cells), 4)), cells)[at]
        raw[at, 4 + label] = 6
    return raw


def fresh_raw(batch: int, resolution: int, classes: int, seed: int = 0) -> torch.Tensor:
    """(b, A, 4 + c) as of a network that has learnt nothing."""
    generator = torch.Generator().manual_seed(seed)
    raw = 0.3 * torch.randn(batch, len(cells_of(resolution)), 4 + classes, generator=generator)
    raw[..., 4:] -= 4.6
    return raw
