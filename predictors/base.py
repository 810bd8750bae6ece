"""The protocol of latency predictors, and the record they answer with.

Predictors follow scikit-learn's contract: `fit` forgets an earlier fit and keeps no reference to the caller's arrays,
learned state ends in an underscore, `predict` takes a batch and comes after `fit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
