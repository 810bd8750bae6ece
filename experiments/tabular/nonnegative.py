"""Latency as a non-negative mix: a sum of amounts (of work, or of what other devices take), none of which saves time.

With a dozen measurements the sign is worth more than any smoothness: a mix cannot order networks the wrong way round.
Which of several alike columns the least squares pick is chance, though, so the mix is averaged with one over resampled
rows (bagging, Breiman 1996).
"""

from __future__ import annotations

from typing import Self

import numpy as np

from experiments.tabular.rows import Matrix, Vector

SMALLEST = 0.02
"""Of the mean latency: no mix says less."""
_BAGS = 20
_MAX_FOLDS = 20
_PASSES = 6


class NonNegativeLatency:
    """Geometric mean of a robust non-negative mix and of the mean of mixes of resampled rows."""

    def fit(self, columns: Matrix, relative: Vector) -> Self:
        """columns (n, k) not negative, relative (n,): latencies over their mean."""
        n = len(relative)
        self._weights = _mix_weights(columns, relative)
        rng = np.random.default_rng(0)
        rows = rng.integers(0, n, (_BAGS, n))
        self._bags = np.stack([_mix_weights(columns[chosen], relative[chosen]) for chosen in rows])
        said = _mixed(columns, self._bags)
        unseen = np.stack([~np.isin(np.arange(n), chosen) for chosen in rows], axis=1)
        left_out = _left_out(columns, relative)
        times = unseen.sum(axis=1)
        out_of_bag = np.where(times > 0, (said * unseen).sum(axis=1) / np.maximum(times, 1), left_out)
        self.left_out_ = np.sqrt(left_out * out_of_bag)
        """What mixes that never saw a row say of it, (n,)."""
        return self

    def predict(self, columns: Matrix) -> Vector:
        """columns (n, k) to relative latencies (n,)."""
        whole = _mixed(columns, self._weights[None])[:, 0]
        return np.asarray(np.sqrt(whole * _mixed(columns, self._bags).mean(axis=1)))


def _mixed(columns: Matrix, weights: Matrix) -> Matrix:
    """columns (n, k) and mixes (m, k + 1), the last a constant, to (n, m)."""
    return np.asarray(np.maximum(columns @ weights[:, :-1].T + weights[:, -1], SMALLEST))


def _mix_weights(columns: Matrix, relative: Vector) -> Vector:
    """Non-negative weights (k + 1,), the last for a constant, by re-weighted least squares on relative errors."""
    from scipy.optimize import nnls

    design = np.column_stack([columns, np.ones(len(columns))])
    row_weight = 1 / relative
    weights = np.zeros(design.shape[1])
    for _ in range(_PASSES):
        weights, _ = nnls(design * row_weight[:, None], relative * row_weight)
        fitted = np.maximum(design @ weights, 0.1)
        error = relative / fitted - 1
        spread = max(1.4826 * float(np.median(np.abs(error))), 0.01)
        row_weight = np.sqrt(4 / (3 + (error / spread) ** 2)) / fitted
    return weights


def _left_out(columns: Matrix, relative: Vector) -> Vector:
    """(n,) what a mix of all the other rows says of each."""
    rows = np.arange(len(relative))
    if len(rows) < 3:
        return _mixed(columns, _mix_weights(columns, relative)[None])[:, 0]
    folds = rows % min(len(rows), _MAX_FOLDS)
    out = np.zeros(len(rows))
    for fold in range(folds.max() + 1):
        held = folds == fold
        out[held] = _mixed(columns[held], _mix_weights(columns[~held], relative[~held])[None])[:, 0]
    return out
