"""Ingredients of a learned predictor, and how cross-validation weighs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from predictors.target_scale import NormalScores

Floats = NDArray[np.float64]
Columns = NDArray[np.intp]

_SCREEN = 3.0  # standard errors
_NEGLIGIBLE = 0.05  # a smaller weight is not worth the time to predict


class Model(Protocol):
    """Learns y (n,) from x (n, d); predicts mean and standard deviation (n,), the latter NaN where it knows none."""

    def fit(self, x: Floats, y: Floats) -> Self: ...
    def predict(self, x: Floats) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A named way to make a model. `make` is called once per fold and once for the final fit."""

    name: str
    make: Callable[[], Model]


@dataclass(frozen=True, slots=True)
class Fold:
    """Predictions for the rows `test` by models fitted without them, in the normal scores of the other rows' values."""

    test: NDArray[np.intp]
    scale: NormalScores
    mean: Floats  # (len(test), ingredients)
    std: Floats  # (len(test), ingredients)


class Trees:
    """Extremely randomised trees (Geurts, Ernst & Wehenkel, 2006)."""

    def __init__(self, columns: Columns, *, n_trees: int = 50, seed: int = 0) -> None:
        self._columns = columns
        self._n_trees = n_trees
        self._seed = seed

    def fit(self, x: Floats, y: Floats) -> Self:
        from sklearn.ensemble import ExtraTreesRegressor

        self._forest = ExtraTreesRegressor(
            self._n_trees, max_features=0.5, min_samples_leaf=1, random_state=self._seed, n_jobs=1
        ).fit(x[:, self._columns].astype(np.float32), y)
        return self

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        view = np.ascontiguousarray(x[:, self._columns], dtype=np.float32)
        # the trees themselves: the forest's own predict spends more on starting jobs than on small chunks
        mean = sum(tree.tree_.predict(view)[:, 0] for tree in self._forest.estimators_) / self._n_trees
        return np.asarray(mean, dtype=np.float64), np.full(len(x), np.nan)


def folds(n: int, *, seed: int) -> list[NDArray[np.intp]]:
    """Disjoint test rows covering all n: five folds, eight where rows are few, one row each below twelve."""
    k = n if n < 12 else 8 if n <= 60 else 5
    return np.array_split(np.random.default_rng(seed).permutation(n), k)


def out_of_fold(ingredients: Sequence[Ingredient], x: Floats, values: Floats, *, seed: int) -> list[Fold]:
    """Predictions for every row by models, and on a scale, that have not seen its value."""
    found = []
    for test in folds(len(values), seed=seed):
        train = np.setdiff1d(np.arange(len(values)), test)
        scale = NormalScores.fit(values[train])
        scores = scale.to_scores(values[train])
        parts = [one.make().fit(x[train], scores).predict(x[test]) for one in ingredients]
        mean, std = np.column_stack([m for m, _ in parts]), np.column_stack([s for _, s in parts])
        found.append(Fold(test, scale, mean, std))
    return found


def stack_weights(predictions: Floats, y: Floats) -> Floats:
    """Non-negative weights (k,) that sum to one, from held-out predictions (n, k): least squares, drawn to equality.

    An ingredient whose squared errors exceed the best one's by more than their standard error gets none. The prior of
    the others is weights ~ N(1/k, 1/k^2), the noise that of the best single ingredient, so that few rows give nearly
    equal weights.
    """
    squares = (predictions - y[:, None]) ** 2
    best = squares[:, [int(squares.mean(0).argmin())]]
    excess = squares - best
    kept = excess.mean(0) <= _SCREEN * excess.std(0) / np.sqrt(len(y))
    members = predictions[:, kept]
    k = members.shape[1]
    penalty = np.sqrt(float(best.mean()) * k * k + 1e-12)
    sum_to_one = 1e3 * np.sqrt(len(y))  # the weight of a row that asks for it
    left = np.vstack([members, penalty * np.eye(k), np.full((1, k), sum_to_one)])
    right = np.concatenate([y, np.full(k, penalty / k), [sum_to_one]])
    weights = np.zeros(len(kept))
    weights[kept] = nnls(left, right)[0]
    weights[weights < _NEGLIGIBLE * weights.sum()] = 0.0
    normalised: Floats = weights / weights.sum()
    return normalised


def mix(mean: Floats, std: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n,) of the weighted mixture of (n, k); members without a std only add spread."""
    center = mean @ weights
    spread = ((mean - center[:, None]) ** 2) @ weights
    known = np.isfinite(std)
    sure = np.where(known, weights, 0.0)
    total = sure.sum(1)
    own = (np.where(known, std, 0.0) ** 2 * sure).sum(1) / np.where(total > 0, total, 1.0)
    return center, np.sqrt(own + spread)
