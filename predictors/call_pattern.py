"""Latency of calls with pauses between them, from the latency of calls without.

A network that rested pays again for what a tight loop pays once: threads are woken up, code, buffers and weights come
back into the caches, and the clock has gone down. Small networks pay nearly as much of it as large ones, whose weights
do not stay in the caches anyway. Measured, the extra time grows about as the cube root of the latency: one factor for a
deployment, fitted by least squares of relative errors, and never negative.

There is no more to it, since a few networks are all that is known. A further factor of the weights is small where 20
networks tell it, and where five do it follows their noise: predictions of networks with more weights than those were up
to four times too long (figures in docs/few-networks.md). A constant and a share of the latency lead astray
where large networks have to tell of small ones.
"""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictors.base import Prediction

MIN_NETWORKS = 3
"""Networks timed both ways that a fit needs at least: of fewer the standard deviation means nothing."""
LEAST_STD = 0.03
"""Relative standard deviation below which nothing is believed of so few networks."""


class CallPatternModel:
    """One pattern of calls in one deployment."""

    def __init__(self) -> None:
        self.per_root_ = 0.0
        """Milliseconds that pauses add per cube root of a millisecond; 0 or more."""
        self.relative_std_ = LEAST_STD

    def fit(self, continuous_ms: ArrayLike, spaced_ms: ArrayLike) -> Self:
        """Fit on n networks, each array (n,).

        Raises:
            ValueError: fewer than `MIN_NETWORKS`.
        """
        base, spaced = (np.asarray(ms, dtype=np.float64) for ms in (continuous_ms, spaced_ms))
        if len(spaced) < MIN_NETWORKS:
            raise ValueError(f"{len(spaced)} networks are too few, {MIN_NETWORKS} are needed")
        self.per_root_ = _fitted(base, spaced)
        # Each network predicted by the others: of few networks, residuals would flatter.
        errors = []
        for left_out in range(len(spaced)):
            others = np.arange(len(spaced)) != left_out
            per_root = _fitted(base[others], spaced[others])
            errors.append((base[left_out] + per_root * np.cbrt(base[left_out])) / spaced[left_out] - 1)
        self.relative_std_ = max(LEAST_STD, float(np.sqrt(np.mean(np.square(errors)))))
        return self

    def predict(self, continuous: Prediction) -> Prediction:
        """Predictions (n,) of calls without pauses -> of calls in this pattern."""
        mean = continuous.mean + self.per_root_ * np.cbrt(continuous.mean)
        # The derivative of the cube root: a doubt of the latency counts once more by what the pause adds.
        slope = 1 + self.per_root_ * np.cbrt(continuous.mean) / (3 * continuous.mean)
        return Prediction(mean=mean, std=np.hypot(continuous.std * slope, mean * self.relative_std_))


def _fitted(base: NDArray[np.float64], spaced: NDArray[np.float64]) -> float:
    """The factor of the cube root with the least squares of relative errors."""
    root, extra = np.cbrt(base) / spaced, np.maximum(spaced - base, 0.0) / spaced
    return float(root @ extra / (root @ root))
