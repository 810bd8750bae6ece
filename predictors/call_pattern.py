"""Latency of calls with pauses between them, from the latency of calls without.

A network that rested pays again for what a tight loop pays once: threads are woken up, code, buffers and weights come
back into the caches, and the clock has gone down. Small networks pay nearly as much of it as large ones, whose weights
do not stay in the caches anyway. Measured, the extra time grows about as the cube root of the latency, and with the
weights. Among networks of one size a constant, a share of the latency, the weights and the number of layers tell it as
well; but they lead astray where a few large networks have to tell of small ones (figures in docs/few-networks.md). The
two factors are non-negative, and fitted by least squares of relative errors.
"""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from predictors.base import Prediction

MIN_NETWORKS = 3
"""Networks timed both ways that a fit needs at least: one more than it has weights."""
LEAST_STD = 0.03
"""Relative standard deviation below which nothing is believed of so few networks."""


class CallPatternModel:
    """One pattern of calls in one deployment."""

    def __init__(self) -> None:
        self.weights_: NDArray[np.float64] = np.zeros(2)
        """Milliseconds per cube root of a millisecond, and per million parameters."""
        self.relative_std_ = LEAST_STD

    def fit(self, continuous_ms: ArrayLike, params: ArrayLike, spaced_ms: ArrayLike) -> Self:
        """Fit on n networks, each array (n,).

        Raises:
            ValueError: fewer than `MIN_NETWORKS`.
        """
        design, base = _design(continuous_ms, params), np.asarray(continuous_ms, dtype=np.float64)
        spaced = np.asarray(spaced_ms, dtype=np.float64)
        if len(spaced) < MIN_NETWORKS:
            raise ValueError(f"{len(spaced)} networks are too few, {MIN_NETWORKS} are needed")
        self.weights_ = _fitted(design, base, spaced)
        # Each network predicted by the others: of few networks, residuals would flatter.
        errors = []
        for left_out in range(len(spaced)):
            others = np.arange(len(spaced)) != left_out
            weights = _fitted(design[others], base[others], spaced[others])
            errors.append((base[left_out] + design[left_out] @ weights) / spaced[left_out] - 1)
        self.relative_std_ = max(LEAST_STD, float(np.sqrt(np.mean(np.square(errors)))))
        return self

    def predict(self, continuous: Prediction, params: ArrayLike) -> Prediction:
        """Predictions (n,) of calls without pauses -> of calls in this pattern."""
        mean = continuous.mean + _design(continuous.mean, params) @ self.weights_
        # The derivative of the cube root: a doubt of the latency counts once more by what the pause adds.
        slope = 1 + self.weights_[0] * np.cbrt(continuous.mean) / (3 * continuous.mean)
        return Prediction(mean=mean, std=np.hypot(continuous.std * slope, mean * self.relative_std_))


def _design(continuous_ms: ArrayLike, params: ArrayLike) -> NDArray[np.float64]:
    return np.column_stack([np.cbrt(np.asarray(continuous_ms)), np.asarray(params, dtype=np.float64) / 1e6])


def _fitted(design: NDArray[np.float64], base: NDArray[np.float64], spaced: NDArray[np.float64]) -> NDArray[np.float64]:
    weights, _ = nnls(design / spaced[:, None], np.maximum(spaced - base, 0.0) / spaced)
    found: NDArray[np.float64] = np.asarray(weights, dtype=np.float64)
    return found
