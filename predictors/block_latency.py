"""Latency of staged networks from whole-network measurements of one device, runtime and precision.

An additive model (a non-negative cost for each physical quantity of each layer) carries what is common to all
networks; a Gaussian process on the composition of that sum corrects what is not additive (fusion, caches, padding).
"""

import warnings
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold

from predictors.base import NotFittedError, Prediction

MIN_NETWORKS = 8
"""Fewer measurements cannot fix even the coarse costs."""


class BlockLatencyPredictor:
    """Predicts latency in milliseconds of the networks of any staged space on one deployment of one device.

    `folds` sets the cross-validation behind the standard deviation; `seed` its shuffling.
    """

    def __init__(self, *, folds: int = 8, seed: int = 0) -> None:
        self.folds = folds
        self.seed = seed

    def fit(self, columns: NDArray[np.float64], latency_ms: NDArray[np.float64]) -> Self:
        """Learn from n measured networks: `columns` (n, k) from `block_features.network_columns`, latencies (n,) in ms.

        Raises `ValueError` for fewer than `MIN_NETWORKS` networks, or latencies that are not positive.
        """
        latency_ms = np.array(latency_ms, dtype=np.float64)
        if len(latency_ms) < MIN_NETWORKS:
            raise ValueError(f"needs at least {MIN_NETWORKS} measured networks, got {len(latency_ms)}")
        if not (np.isfinite(latency_ms).all() and (latency_ms > 0).all()):
            raise ValueError("latencies must be positive and finite")
        self.cross_validated_ms_ = self._out_of_fold(columns, latency_ms)
        errors = np.log(latency_ms / self.cross_validated_ms_)
        # A robust and a plain estimate: the larger, so that a few bad networks are not wished away.
        self.relative_std_ = float(max(np.std(errors), np.quantile(np.abs(errors), 0.9) / 1.645, 1e-3))
        self._model = _Composite(self.seed).fit(columns, latency_ms)
        return self

    def predict(self, columns: NDArray[np.float64]) -> Prediction:
        """Mean and standard deviation (n,), ms, of networks with `columns` (n, k)."""
        if not hasattr(self, "_model"):
            raise NotFittedError("BlockLatencyPredictor is not fitted; call `fit` first")
        mean, far = self._model.predict(columns)
        return Prediction(mean=mean, std=mean * self.relative_std_ * far)

    def _out_of_fold(self, columns: NDArray[np.float64], latency_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """What models that never saw a network say of it, (n,) ms."""
        predicted = np.empty_like(latency_ms)
        folds = KFold(min(self.folds, len(latency_ms)), shuffle=True, random_state=self.seed)
        for train, test in folds.split(columns):
            predicted[test] = _Composite(self.seed).fit(columns[train], latency_ms[train]).predict(columns[test])[0]
        return predicted


class _Composite:
    """Non-negative additive costs times a smooth correction."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, columns: NDArray[np.float64], latency_ms: NDArray[np.float64]) -> Self:
        self._scale = columns.mean(axis=0) + 1e-12
        design = self._design(columns)
        # Rows divided by the latency: relative errors count. A little ridge keeps collinear costs apart.
        rows = np.concatenate([design / latency_ms[:, None], np.eye(design.shape[1]) * 0.01 / latency_ms.mean()])
        self._costs, _ = nnls(rows, np.concatenate([np.ones(len(design)), np.zeros(design.shape[1])]), maxiter=10_000)
        additive = design @ self._costs
        features = self._composition(columns, additive)
        self._mean, self._spread = features.mean(axis=0), features.std(axis=0) + 1e-9
        residual = np.log(latency_ms / additive)
        kernel = ConstantKernel(0.01, (1e-5, 1.0)) * RBF(3.0, (0.5, 30.0)) + WhiteKernel(1e-3, (1e-6, 1e-1))
        self._gp = GaussianProcessRegressor(kernel, normalize_y=False, random_state=self.seed)
        with warnings.catch_warnings():
            # A length scale or noise at its bound means "no such effect" or "exact": both are fine.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._gp.fit((features - self._mean) / self._spread, residual)
        # Predictive spread at the training points, to tell how much farther away a candidate is.
        self._near = float(np.median(self._gp.predict((features - self._mean) / self._spread, return_std=True)[1]))
        return self

    def predict(self, columns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Latency (n,) ms, and how much less sure than near the training networks (n,), from 1 to 3."""
        additive = self._design(columns) @ self._costs
        features = (self._composition(columns, additive) - self._mean) / self._spread
        correction, std = self._gp.predict(features, return_std=True)
        return additive * np.exp(np.clip(correction, -1.0, 1.0)), np.clip(std / (self._near + 1e-9), 1.0, 3.0)

    def _design(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([np.ones((len(columns), 1)), columns / self._scale], axis=1)

    def _composition(self, columns: NDArray[np.float64], additive: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the sum is made of: log total, shares of the parts, and the sizes that decide about caches."""
        parts = self._design(columns) * self._costs
        active = self._costs > 0
        shares = np.sqrt(parts[:, active] / additive[:, None])
        return np.concatenate([np.log(additive)[:, None], shares], axis=1)
