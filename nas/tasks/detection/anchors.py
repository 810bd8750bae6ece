"""Places of a detector's predictions: a grid per level, with one or more anchor boxes at each of its points.

One description serves anchor boxes (SSD, RetinaNet) and anchor points (FCOS and ours, where the size of the "box" is
the unit of distances), in training, in decoding and in the bundles' `postprocess.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Level:
    """The predictions of one level of a feature pyramid, on a square image."""

    cells: int
    """Rows and columns of the grid."""
    step_px: float
    """Distance of neighbouring points."""
    offset: float
    """Distance of the first point from the image's corner, in steps."""
    sizes_px: tuple[tuple[float, float], ...]
    """Width and height of each anchor box of a point; predictions of a point lie beside each other."""


def anchors_of(levels: Sequence[Level]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Centres and sizes, each (A, 2) float32 (x, y) in pixels: level by level, row by row, anchor by anchor."""
    centres, sizes = [], []
    for level in levels:
        line = (np.arange(level.cells) + level.offset) * level.step_px
        y, x = np.meshgrid(line, line, indexing="ij")
        points = np.stack([x, y], axis=-1).reshape(-1, 2)
        centres.append(np.repeat(points, len(level.sizes_px), axis=0))
        sizes.append(np.tile(np.array(level.sizes_px), (len(points), 1)))
    return np.concatenate(centres).astype(np.float32), np.concatenate(sizes).astype(np.float32)


def anchor_boxes(levels: Sequence[Level]) -> NDArray[np.float32]:
    """The same as boxes (A, 4) float32 (x0, y0, x1, y1) in pixels; they may reach beyond the image."""
    centres, sizes = anchors_of(levels)
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)
