"""A small Gaussian process whose length scale and noise are chosen by leave-one-out likelihood on a grid.

Fitting takes milliseconds for a few hundred points, because the leave-one-out predictions follow from one factorisation
(Rasmussen and Williams 2006, section 5.4.2), and there is no optimiser to fail or to depend on its start.
"""

from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh

Floats = NDArray[np.float64]

LENGTH_SCALES = (0.5, 1.0, 2.0, 4.0)
"""Length scales of the standardised features, in units of the square root of their number."""
NOISES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Variance of the noise relative to that of the function."""
_CHUNK = 2048


class SmoothGp:
    """Matérn-5/2 kernel with one length scale on standardised features; constant mean."""

    _length: float
    _noise: float

    def fit(self, x: Floats, y: Floats, like: "SmoothGp | None" = None) -> Self:
        """Learn from `x` (n, d) and `y` (n,), n >= 2; with the length scale and noise of `like`, where given."""
        self._center, spread = x.mean(axis=0), x.std(axis=0)
        self._kept = spread > 1e-9
        self._spread = spread[self._kept]
        self._inputs = self._standardised(x)
        self._mean = float(y.mean())
        squares = _squares(self._inputs, self._inputs)
        if like is not None:
            self._length, self._noise = like._length, like._noise
        else:
            self._length, self._noise = _most_likely(squares, y - self._mean, self._inputs.shape[1])
        kernel = _matern52(squares / self._length**2)
        self._inverse = _inverse(kernel + self._noise * np.eye(len(y)))
        self._weights = self._inverse @ (y - self._mean)
        variances = 1 / np.diag(self._inverse)
        errors = self._weights * variances
        self._variance = float(np.mean(errors**2 / variances)) + 1e-12
        self.left_out_ = y - errors
        """Leave-one-out predictions of the points, (n,)."""
        return self

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,), noise included, at `x` (n, d)."""
        mean, std = np.empty(len(x)), np.empty(len(x))
        for part, kernel in self._kernels(x):
            mean[part] = self._mean + kernel @ self._weights
            explained = ((kernel @ self._inverse) * kernel).sum(axis=1)
            std[part] = np.sqrt(self._variance * np.maximum(1 + self._noise - explained, 1e-12))
        return mean, std

    def mean(self, x: Floats) -> Floats:
        """The mean (n,) of `predict` alone, for a fraction of its price."""
        mean = np.empty(len(x))
        for part, kernel in self._kernels(x):
            mean[part] = self._mean + kernel @ self._weights
        return mean

    def _kernels(self, x: Floats) -> Iterator[tuple[slice, Floats]]:
        """Covariances (k, n) with the n known points, of so few of the new ones at once that they stay in the cache."""
        for start in range(0, len(x), _CHUNK):
            part = slice(start, start + _CHUNK)
            yield part, _matern52(_squares(self._standardised(x[part]), self._inputs) / self._length**2)

    def _standardised(self, x: Floats) -> Floats:
        return np.asarray((x - self._center)[:, self._kept] / self._spread)


def _most_likely(squares: Floats, centered: Floats, dimensions: int) -> tuple[float, float]:
    """Length scale and noise of the highest leave-one-out likelihood; one eigendecomposition serves all noises."""
    best, chosen = -np.inf, (1.0, 1.0)
    for factor in LENGTH_SCALES:
        length = factor * np.sqrt(max(1, dimensions))
        values, vectors = eigh(_matern52(squares / length**2))
        projected, loadings = vectors.T @ centered, vectors**2
        for noise in NOISES:
            shrunk = 1 / (np.maximum(values, 0) + noise)
            variances = 1 / (loadings @ shrunk)
            errors = (vectors @ (shrunk * projected)) * variances
            variance = float(np.mean(errors**2 / variances)) + 1e-12
            likelihood = -float(np.mean(np.log(variance * variances) + errors**2 / (variance * variances)))
            if likelihood > best:
                best, chosen = likelihood, (length, noise)
    return chosen


def _squares(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T, 0))


def _matern52(squares: Floats) -> Floats:
    distance = np.sqrt(5 * squares)
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(cho_solve(cho_factor(matrix, lower=True), np.eye(len(matrix))))
