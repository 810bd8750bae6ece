"""Simple predictors that ours must beat: constant, ridge on one-hot and a Gaussian process on one-hot.

They see the decisions themselves and nothing of a space's structure; latency is learned as its logarithm.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.tabular.features import TableEncoding, check_levels, one_hot_levels
from experiments.tabular.rows import Matrix, Vector, check_choices, check_training
from predictors.base import NotFittedError, Prediction


class ConstantLatency:
    """The median of the training latencies, whatever the network."""

    def __init__(self, encoding: TableEncoding) -> None:
        self.encoding = encoding
        self.median_ms_: float | None = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive."""
        _, y = check_training(choices, latency_ms)
        self.median_ms_ = float(np.median(y))
        self.std_ms_ = float(np.quantile(np.abs(y - self.median_ms_), 0.9) / 1.6449)
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds. Raises NotFittedError before `fit`."""
        if self.median_ms_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        matrix = check_choices(choices)
        check_levels(matrix, self.encoding.levels)
        return Prediction(np.full(len(matrix), self.median_ms_), np.full(len(matrix), self.std_ms_))


class _PlainRows:
    """One-hot choices and standardised numbers; numbers are centred on the training rows."""

    def __init__(self, encoding: TableEncoding, training: Matrix) -> None:
        self.levels = encoding.levels
        self.is_number = np.array([legal is None for legal in encoding.levels])
        std = training.std(0)
        self.center = np.where(self.is_number, training.mean(0), 0.0)
        self.scale = np.where(self.is_number & (std > 1e-12), std, 1.0)

    def encode(self, choices: Matrix) -> Matrix:
        check_levels(choices, self.levels)
        return one_hot_levels((choices - self.center) / self.scale, self.levels)


class OneHotRidge:
    """Ridge regression of the log latency, its penalty by leave-one-out (scikit-learn's RidgeCV)."""

    def __init__(self, encoding: TableEncoding) -> None:
        self.encoding = encoding
        self.model_: Any = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive."""
        from sklearn.linear_model import RidgeCV

        matrix, y = check_training(choices, latency_ms)
        self.rows_ = _PlainRows(self.encoding, matrix)
        self.model_ = RidgeCV(np.logspace(-3, 3, 25)).fit(self.rows_.encode(matrix), np.log(y))
        self.log_std_ = float(np.sqrt(max(-self.model_.best_score_, 0.0)))
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds. Raises NotFittedError before `fit`."""
        if self.model_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        log_mean = self.model_.predict(self.rows_.encode(check_choices(choices)))
        return from_log(log_mean, np.full(len(log_mean), self.log_std_))


class OneHotGP:
    """Gaussian process with an RBF kernel and white noise on the log latency (scikit-learn)."""

    def __init__(self, encoding: TableEncoding, *, seed: int = 0) -> None:
        self.encoding = encoding
        self.seed = seed
        self.model_: Any = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive."""
        import warnings

        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        matrix, y = check_training(choices, latency_ms)
        self.rows_ = _PlainRows(self.encoding, matrix)
        kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(5.0, (0.5, 100.0)) + WhiteKernel(0.1, (1e-4, 2.0))
        log_y = np.log(y)
        self.center_, self.scale_ = float(log_y.mean()), max(float(log_y.std()), 1e-6)
        model = GaussianProcessRegressor(kernel, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a bound reached is an answer for a baseline
            self.model_ = model.fit(self.rows_.encode(matrix), (log_y - self.center_) / self.scale_)
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds. Raises NotFittedError before `fit`."""
        if self.model_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        mean, std = self.model_.predict(self.rows_.encode(check_choices(choices)), return_std=True)
        return from_log(self.center_ + self.scale_ * mean, self.scale_ * std)


def from_log(log_mean: Vector, log_std: Vector) -> Prediction:
    """A prediction in milliseconds from one of the log latency: its median, and a first-order standard deviation."""
    mean = np.exp(np.clip(log_mean, -30, 30))
    return Prediction(mean, mean * np.minimum(log_std, 10))
