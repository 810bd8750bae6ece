"""Ingredients of a learned predictor, and how cross-validation weighs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]
Columns = NDArray[np.intp]


class Model(Protocol):
    """Learns y (n,) from x (n, d); predicts mean and standard deviation (n,), the latter NaN where it knows none."""

    def fit(self, x: Floats, y: Floats) -> Self: ...
    def predict(self, x: Floats, *, with_std: bool = True) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A named way to make a model. `make` is called once per fold and once for the final fit."""

    name: str
    make: Callable[[], Model]


@dataclass(frozen=True, slots=True)
class OutOfFold:
    """Predictions of every ingredient (n, ingredients) for rows it was not fitted on."""

    mean: Floats
    std: Floats


class Ridge:
    """Linear regression on the given columns; the penalty is the one with the least leave-one-out error."""

    _PENALTIES = np.logspace(-2, 4, 13)

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def fit(self, x: Floats, y: Floats) -> Self:
        view = x[:, self._columns]
        self._offset = view.mean(0)
        self._intercept = float(y.mean())
        left, singular, right = np.linalg.svd(view - self._offset, full_matrices=False)
        projected = left.T @ (y - self._intercept)
        errors = []
        for penalty in self._PENALTIES:
            shrink = singular**2 / (singular**2 + penalty)
            leverage = np.einsum("ij,j,ij->i", left, shrink, left) + 1.0 / len(y)
            residual = y - self._intercept - left @ (shrink * projected)
            errors.append(float(np.mean((residual / np.maximum(1.0 - leverage, 1e-3)) ** 2)))
        best = self._PENALTIES[int(np.argmin(errors))]
        self._coefficients = right.T @ (singular / (singular**2 + best) * projected)
        return self

    def predict(self, x: Floats, *, with_std: bool = True) -> tuple[Floats, Floats]:
        mean = self._intercept + (x[:, self._columns] - self._offset) @ self._coefficients
        return mean, np.full(len(x), np.nan)


class Trees:
    """Extremely randomised trees (Geurts, Ernst & Wehenkel, 2006)."""

    def __init__(self, columns: Columns, *, n_trees: int = 100, seed: int = 0) -> None:
        self._columns = columns
        self._n_trees = n_trees
        self._seed = seed

    def fit(self, x: Floats, y: Floats) -> Self:
        from sklearn.ensemble import ExtraTreesRegressor

        self._forest = ExtraTreesRegressor(
            self._n_trees, max_features=0.5, min_samples_leaf=1, random_state=self._seed, n_jobs=1
        ).fit(x[:, self._columns].astype(np.float32), y)
        return self

    def predict(self, x: Floats, *, with_std: bool = True) -> tuple[Floats, Floats]:
        mean = self._forest.predict(x[:, self._columns].astype(np.float32))
        return np.asarray(mean, dtype=np.float64), np.full(len(x), np.nan)


class Boosting:
    """Histogram gradient boosting with small leaves, for data of a hundred rows and more."""

    def __init__(self, columns: Columns, *, seed: int = 0) -> None:
        self._columns = columns
        self._seed = seed

    def fit(self, x: Floats, y: Floats) -> Self:
        from sklearn.ensemble import HistGradientBoostingRegressor

        self._trees = HistGradientBoostingRegressor(
            learning_rate=0.1, max_iter=100, max_leaf_nodes=8, min_samples_leaf=max(2, min(10, len(y) // 10)),
            l2_regularization=1.0, early_stopping=False, random_state=self._seed,
        ).fit(x[:, self._columns], y)
        return self

    def predict(self, x: Floats, *, with_std: bool = True) -> tuple[Floats, Floats]:
        return np.asarray(self._trees.predict(x[:, self._columns]), dtype=np.float64), np.full(len(x), np.nan)


def folds(n: int, *, seed: int) -> list[NDArray[np.intp]]:
    """Disjoint test rows covering all n: five folds, eight where rows are few, one row each below twelve."""
    k = n if n < 12 else 8 if n <= 60 else 5
    return np.array_split(np.random.default_rng(seed).permutation(n), k)


def out_of_fold(ingredients: Sequence[Ingredient], x: Floats, y: Floats, *, seed: int) -> OutOfFold:
    """Predictions for every row by models that have not seen it."""
    shape = (len(y), len(ingredients))
    mean, std = np.empty(shape), np.full(shape, np.nan)
    for test in folds(len(y), seed=seed):
        train = np.setdiff1d(np.arange(len(y)), test)
        for at, ingredient in enumerate(ingredients):
            mean[test, at], std[test, at] = ingredient.make().fit(x[train], y[train]).predict(x[test])
    return OutOfFold(mean, std)


def stack_weights(predictions: Floats, y: Floats) -> Floats:
    """Non-negative weights (k,) that sum to one: least squares, drawn towards equal weights where data are few.

    The prior is weights ~ N(1/k, 1/k^2), the noise that of the best single ingredient. A useless ingredient makes
    large errors, so that even few rows outweigh the prior.
    """
    n, k = predictions.shape
    if k == 1:
        return np.ones(1)
    errors = ((predictions - y[:, None]) ** 2).mean(0)
    penalty = float(errors.min()) * k * k + 1e-12
    # a heavily weighted last row makes the weights sum to one
    big = 1e3 * np.sqrt(n)
    left = np.vstack([predictions, np.sqrt(penalty) * np.eye(k), np.full((1, k), big)])
    right = np.concatenate([y, np.full(k, np.sqrt(penalty) / k), [big]])
    weights, _ = nnls(left, right)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mix(mean: Floats, std: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n,) of the weighted mixture of (n, k); members without a std only add spread."""
    center = mean @ weights
    spread = ((mean - center[:, None]) ** 2) @ weights
    known = np.isfinite(std)
    sure = np.where(known, weights, 0.0)
    total = sure.sum(1)
    own = (np.where(known, std, 0.0) ** 2 * sure).sum(1) / np.where(total > 0, total, 1.0)
    return center, np.sqrt(own + spread)
