"""What every latency predictor promises, and the record it answers with.

Predictors follow scikit-learn's contract: `fit` forgets an earlier fit and keeps no reference to the caller's arrays,
learned state ends in an underscore, `predict` takes a batch and comes after `fit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from search_spaces.errors import UserError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


class NotFittedError(ValueError, AttributeError):
    """`predict` was called before `fit`: a mistake of the calling code, not of its user."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Mean and standard deviation per candidate, both of shape (n,), in the unit of the fitted target.

    Raises:
        ValueError: the two are not finite vectors of one length, or a standard deviation is negative.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(f"mean {self.mean.shape} and std {self.std.shape} must both be (n,)")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all()):
            raise ValueError("a prediction must be finite")
        if (self.std < 0).any():
            raise ValueError("a standard deviation must not be negative")


class LatencyPredictor(Protocol):
    """Predicts the latency of table rows on the one device it was fitted for."""

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """Learns from `choices` (n, decisions) and `latency_ms` (n,), positive milliseconds."""
        ...

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """Mean and standard deviation in milliseconds for each row of `choices` (n, decisions)."""
        ...


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
