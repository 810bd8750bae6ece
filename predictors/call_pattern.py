"""Latency of calls with pauses between them, from the latency of calls without.

A network that rested pays again for what a tight loop pays once: its threads are woken up (a constant), its weights are
fetched into the caches (by their bytes), its operators' code and buffers as well (by their number), and the clock has
gone down (a share of the latency). The extra time is a non-negative sum of these four, fitted by least squares of
relative errors.
"""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from predictors.base import Prediction

MIN_NETWORKS = 4
"""Networks timed both ways that a fit needs at least: as many as it has weights, and as the quickest profile has."""
LEAST_STD = 0.03
"""Relative standard deviation below which nothing is believed of so few networks."""


class CallPatternModel:
    """One pattern of calls in one deployment."""

    def __init__(self) -> None:
        self.weights_: NDArray[np.float64] = np.zeros(4)
        """Milliseconds per call, per millisecond, per million parameters, per layer."""
        self.relative_std_ = LEAST_STD

    def fit(self, continuous_ms: ArrayLike, params: ArrayLike, layers: ArrayLike, spaced_ms: ArrayLike) -> Self:
        """Fit on n networks, each array (n,).

        Raises:
            ValueError: fewer than `MIN_NETWORKS`.
        """
        design, base = _design(continuous_ms, params, layers), np.asarray(continuous_ms, dtype=np.float64)
        spaced = np.asarray(spaced_ms, dtype=np.float64)
        if len(spaced) < MIN_NETWORKS:
            raise ValueError(f"{len(spaced)} networks are too few, {MIN_NETWORKS} are needed")
        self.weights_ = _fitted(design, base, spaced)
        # Each network predicted by the others: with four weights and few networks, residuals would flatter.
        errors = []
        for left_out in range(len(spaced)):
            others = np.arange(len(spaced)) != left_out
            weights = _fitted(design[others], base[others], spaced[others])
            errors.append((base[left_out] + design[left_out] @ weights) / spaced[left_out] - 1)
        self.relative_std_ = max(LEAST_STD, float(np.sqrt(np.mean(np.square(errors)))))
        return self

    def predict(self, continuous: Prediction, params: ArrayLike, layers: ArrayLike) -> Prediction:
        """Predictions (n,) of calls without pauses -> of calls in this pattern."""
        mean = continuous.mean + _design(continuous.mean, params, layers) @ self.weights_
        std = np.hypot(continuous.std * (1 + self.weights_[1]), mean * self.relative_std_)
        return Prediction(mean=mean, std=std)


def _design(continuous_ms: ArrayLike, params: ArrayLike, layers: ArrayLike) -> NDArray[np.float64]:
    latency = np.asarray(continuous_ms, dtype=np.float64)
    return np.column_stack(
        [
            np.ones(len(latency)),
            latency,
            np.asarray(params, dtype=np.float64) / 1e6,
            np.asarray(layers, dtype=np.float64),
        ]
    )


def _fitted(design: NDArray[np.float64], base: NDArray[np.float64], spaced: NDArray[np.float64]) -> NDArray[np.float64]:
    weights, _ = nnls(design / spaced[:, None], np.maximum(spaced - base, 0.0) / spaced)
    found: NDArray[np.float64] = np.asarray(weights, dtype=np.float64)
    return found
