"""Simple transfer: the new device as a function of the rows of other devices' tables.

Both look a network up in the tables, so they predict only networks that were measured on every source device.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.tabular.baselines import from_log
from experiments.tabular.features import TableEncoding
from experiments.tabular.rows import Matrix, Vector, check_choices, check_training
from predictors.base import NotFittedError, Prediction
from search_spaces.errors import UserError

_N_COMPONENTS = 8


class SourceTable:
    """Rows of other devices' tables, found by their choices."""

    def __init__(self, choices: NDArray[Any], values: Matrix) -> None:
        matrix = check_choices(choices)
        self._row = {row.tobytes(): i for i, row in enumerate(matrix)}
        self._values = values

    def look_up(self, choices: Matrix) -> Matrix:
        """(n, decisions) to (n, columns). Raises UserError for a network that the tables do not have."""
        rows = [self._row.get(row.tobytes(), -1) for row in np.ascontiguousarray(choices)]
        if -1 in rows:
            missing = choices[rows.index(-1)]
            raise UserError(f"the source tables have no row with the choices {missing.astype(int).tolist()}")
        return self._values[np.asarray(rows, dtype=np.intp)]


class PrincipalComponentRidge:
    """Ridge of the log latency on the first principal components of the sources' log latencies."""

    def __init__(self, encoding: TableEncoding, source_choices: NDArray[Any], source_latency_ms: ArrayLike) -> None:
        self.encoding = encoding
        log_table = np.log(np.array(source_latency_ms, dtype=np.float64))
        left, singular, _ = np.linalg.svd(log_table - log_table.mean(0), full_matrices=False)
        self.table = SourceTable(source_choices, left[:, :_N_COMPONENTS] * singular[:_N_COMPONENTS])
        self.model_: Any = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive."""
        from sklearn.linear_model import RidgeCV

        matrix, y = check_training(choices, latency_ms)
        self.model_ = RidgeCV(np.logspace(-4, 2, 25)).fit(self.table.look_up(matrix), np.log(y))
        self.log_std_ = float(np.sqrt(max(-self.model_.best_score_, 0.0)))
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds. Raises NotFittedError before `fit`."""
        if self.model_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        log_mean = self.model_.predict(self.table.look_up(check_choices(choices)))
        return from_log(log_mean, np.full(len(log_mean), self.log_std_))


class NonNegativeMix:
    """Non-negative sum of the sources' latencies and a constant, fitted to relative errors."""

    def __init__(self, encoding: TableEncoding, source_choices: NDArray[Any], source_latency_ms: ArrayLike) -> None:
        self.encoding = encoding
        table = np.array(source_latency_ms, dtype=np.float64)
        self.table = SourceTable(source_choices, np.column_stack([table / table.mean(0), np.ones(len(table))]))
        self.weights_: Vector | None = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive."""
        from scipy.optimize import nnls

        matrix, y = check_training(choices, latency_ms)
        features = self.table.look_up(matrix)
        unit = float(y.mean())
        weights, _ = nnls(features / (y / unit)[:, None], np.ones(len(y)))
        self.weights_ = weights * unit
        self.relative_std_ = float(np.sqrt(np.mean((features @ self.weights_ / y - 1) ** 2)))
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds. Raises NotFittedError before `fit`."""
        if self.weights_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        mean = np.maximum(self.table.look_up(check_choices(choices)) @ self.weights_, 0)
        return Prediction(mean, mean * self.relative_std_)
