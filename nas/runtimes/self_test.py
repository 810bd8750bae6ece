"""One product computed by a runtime before a precision is offered: some have returned wrong ones.

OpenVINO 2026.4.0 did in bf16 on some processors without AMX (its issue 38256).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Multiply = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]
"""(rows, inner), (inner, columns) -> (rows, columns), in the precision that is tested."""

SHAPES = ((1, 64, 10), (7, 147, 33), (64, 256, 128))
"""(rows, inner, columns): a classifier's last layer, sizes that fit no register, and a block of a convolution."""
TOLERANCE = 0.02
"""Root mean square of the error over that of the product. That of bf16, which keeps eight bits, is about 0.003."""


def products_are_right(multiply: Multiply) -> bool:
    """True if the products of random matrices are what double precision says, up to `TOLERANCE`."""
    rng = np.random.default_rng(0)
    for rows, inner, columns in SHAPES:
        left = rng.standard_normal((rows, inner), dtype=np.float32)
        right = rng.standard_normal((inner, columns), dtype=np.float32)
        true = left.astype(np.float64) @ right.astype(np.float64)
        found = np.asarray(multiply(left, right), dtype=np.float64)
        if found.shape != true.shape or not np.isfinite(found).all():
            return False
        if np.linalg.norm(found - true) > TOLERANCE * np.linalg.norm(true):
            return False
    return True
