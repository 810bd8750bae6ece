"""Boxes, and the grid of cells that predict them.

Dimensions in docstrings: A cells of all levels of an image, k and m boxes. Boxes are (x0, y0, x1, y1) in pixels.
Functions ending in `_torch` are the twins for tensors; the others need numpy alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

STRIDES = (8, 16, 32)
"""Pixels between neighbouring cells of each level."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of an image in the order of raw outputs: level-major (smallest stride first), then row-major."""

    centres: NDArray[np.float32]
    """(A, 2) float32, x and y in pixels."""
    strides: NDArray[np.float32]
    """(A,) float32, pixels."""

    def __len__(self) -> int:
        return len(self.strides)


@lru_cache(maxsize=32)
def cells_of(resolution: int) -> Cells:
    """The cells of a (resolution, resolution) image; read-only arrays.

    Raises:
        ValueError: `resolution` is not a positive multiple of the largest stride.
    """
    if resolution <= 0 or resolution % STRIDES[-1]:
        raise ValueError(f"a resolution of {resolution} is not a positive multiple of {STRIDES[-1]}")
    centres, strides = [], []
    for stride in STRIDES:
        along = (np.arange(resolution // stride, dtype=np.float32) + 0.5) * stride
        y, x = np.meshgrid(along, along, indexing="ij")
        centres.append(np.stack([x.ravel(), y.ravel()], axis=1))
        strides.append(np.full(x.size, stride, dtype=np.float32))
    cells = Cells(np.concatenate(centres), np.concatenate(strides))
    cells.centres.setflags(write=False)
    cells.strides.setflags(write=False)
    return cells


def boxes_from_raw_torch(t: "Tensor", centres: "Tensor", strides: "Tensor") -> "Tensor":
    """Twin of `nas.tasks.detection.decoding.boxes_from_raw`; `t` (..., 4), its cells' `centres` (..., 2) and `strides`
    (...)."""
    import torch
    from torch.nn.functional import softplus

    distances = softplus(t) * strides.unsqueeze(-1)
    return torch.cat([centres - distances[..., :2], centres + distances[..., 2:]], dim=-1)


def pairwise_iou(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """(k, 4), (m, 4) -> (k, m) intersection over union; 0 where both boxes have no area."""
    # Coordinate by coordinate: several times faster than broadcasting over a last axis of two.
    ax0, ay0, ax1, ay1 = a.T[..., None]
    bx0, by0, bx1, by1 = b.T
    width = np.minimum(ax1, bx1) - np.maximum(ax0, bx0)
    height = np.minimum(ay1, by1) - np.maximum(ay0, by0)
    intersection = np.maximum(width, 0) * np.maximum(height, 0)
    union = area(a)[:, None] + area(b) - intersection
    # A union of zero means an intersection of zero: any positive divisor does.
    return np.asarray(intersection / np.maximum(union, np.float32(1e-9)), dtype=np.float32)


def paired_iou_torch(a: "Tensor", b: "Tensor") -> "Tensor":
    """(k, 4), (k, 4) -> (k,) intersection over union of each pair; 0 where both boxes have no area."""
    overlap = (a[:, 2:].minimum(b[:, 2:]) - a[:, :2].maximum(b[:, :2])).clamp(min=0)
    intersection = overlap[:, 0] * overlap[:, 1]
    area_a, area_b = ((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) for box in (a, b))
    return intersection / (area_a + area_b - intersection).clamp(min=1e-9)


def area(xyxy: NDArray[np.float32]) -> NDArray[np.float32]:
    return (xyxy[:, 2] - xyxy[:, 0]) * (xyxy[:, 3] - xyxy[:, 1])
