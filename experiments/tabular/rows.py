"""Checked copies of a table's rows, as its predictors take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from search_spaces.errors import UserError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def check_choices(choices: NDArray[Any]) -> Matrix:
    """A float64 copy of a (n, decisions) matrix.

    Raises:
        UserError: not a matrix, or not finite numbers.
    """
    matrix = np.array(choices, dtype=np.float64)
    if matrix.ndim != 2:
        raise UserError(f"choices must be a matrix (rows, decisions), got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise UserError("choices contain NaN or infinite values", "drop those rows first")
    return matrix


def check_training(choices: NDArray[Any], latency_ms: ArrayLike) -> tuple[Matrix, Vector]:
    """Float64 copies of the training rows.

    Raises:
        UserError: nothing to learn from, lengths differ, or a latency is not a positive number.
    """
    matrix = check_choices(choices)
    y = np.array(latency_ms, dtype=np.float64)
    if y.ndim != 1 or len(y) != len(matrix):
        raise UserError(f"{len(matrix)} rows of choices need as many latencies, got shape {y.shape}")
    if len(y) == 0:
        raise UserError("no training rows", "measure at least one network")
    bad = ~(np.isfinite(y) & (y > 0))
    if bad.any():
        raise UserError(
            f"latency {y[bad][0]} ms in row {int(np.flatnonzero(bad)[0])} is not positive",
            "drop failed measurements before fitting",
        )
    return matrix, y
