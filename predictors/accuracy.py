"""The learned accuracy predictor: structure, plus whatever cheap evidence there is, weighed by cross-validation."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from predictors.accuracy_features import Choices, FeatureView, generic_views
from predictors.additive_gp import AdditiveGP, Term
from predictors.base import NotFittedError, Prediction
from predictors.ensembles import Fold, Ingredient, Trees, mix, out_of_fold, stack_weights
from predictors.one_thread import one_thread
from predictors.target_scale import NormalScores
from search_spaces.errors import UserError

Floats = NDArray[np.float64]
Columns = NDArray[np.intp]

_MIN_ROWS = 4
_MIN_ROWS_TREES = 60
_CALIBRATION_PRIOR_ROWS = 40
_CHUNK_ROWS = 1024  # keeps the temporaries of scoring a million candidates in cache
_LEVEL = 0.90  # the interval that is calibrated: mean +- 1.645 std
_Z = float(ndtri(0.5 + _LEVEL / 2))


class AccuracyPredictor:
    """Predicts accuracy (higher is better) from integer choices and optional extra columns.

    `features` maps choices (n, d) to floats (n, k), or is a tuple of such views, short summary first
    (`predictors.accuracy_features`); without it the choices' ordinal ranks and one-hot codes are used.
    `extra` columns (n, e) are proxies or results of short training; NaN marks a missing value.

    Gaussian processes on several column sets, and trees from sixty rows on, are fitted to the normal scores of the
    accuracies' ranks and mixed with weights from cross-validation: an extra column that does not help on this data
    loses its weight. Candidates without any extra value are predicted by the ingredients that need none.
    The standard deviation is scaled so that mean +- 1.645 std covers 90 % of the cross-validation rows.
    """

    def __init__(
        self,
        *,
        features: FeatureView | Sequence[FeatureView] | None = None,
        seed: int = 0,
        fast: bool = False,
    ) -> None:
        """`fast` leaves out the trees and the Gaussian processes with many length scales: faster."""
        self._features = features
        self._seed = seed
        self._fast = fast

    @one_thread()
    def fit(self, choices: Choices, accuracy: Floats, extra: Floats | None = None) -> Self:
        """Learn from choices (n, d), accuracy (n,) in any unit and extra (n, e); forgets earlier fits.

        Raises UserError for fewer than four rows, shapes that do not agree, or accuracies that are not finite.
        """
        choices, accuracy = _checked(choices), np.asarray(accuracy, dtype=np.float64)
        if accuracy.shape != (len(choices),):
            raise UserError(f"accuracy has shape {accuracy.shape}, expected ({len(choices)},)", "one value per row")
        if len(accuracy) < _MIN_ROWS:
            raise UserError(f"{len(accuracy)} labelled networks are too few", f"give at least {_MIN_ROWS}")
        if not np.isfinite(accuracy).all():
            bad = int((~np.isfinite(accuracy)).sum())
            raise UserError(f"{bad} accuracies are not finite", "leave out networks whose training diverged")
        self._views = _as_views(self._features, choices)
        self._n_choices = choices.shape[1]
        self._columns = _ColumnSet.fit(self._raw_views(choices), _checked_extra(extra, len(choices)))
        x = self._columns.transform(self._raw_views(choices), _checked_extra(extra, len(choices)))
        scale = NormalScores.fit(accuracy)
        scores = scale.to_scores(accuracy)
        ingredients = self._ingredients(len(accuracy))
        held_out = out_of_fold([one for one, _ in ingredients], x, accuracy, seed=self._seed)
        order = np.concatenate([fold.test for fold in held_out])
        predictions = np.concatenate([fold.mean for fold in held_out])
        structural = np.array([not needs_extra for _, needs_extra in ingredients])
        self._scale = scale
        self._models = [one.make().fit(x, scores) for one, _ in ingredients]
        self._names = [one.name for one, _ in ingredients]
        self._mixtures = []
        for allowed in (np.ones(len(ingredients), dtype=bool), structural):
            weights = np.zeros(len(ingredients))
            weights[allowed] = stack_weights(predictions[:, allowed], scores[order])
            self._mixtures.append(_Mixture(weights, _calibrate(held_out, weights, accuracy)))
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every ingredient for candidates that come with extra values (or for all, if there are none)."""
        self._require_fit()
        return dict(zip(self._names, self._mixtures[0].weights.tolist(), strict=True))

    @one_thread()
    def believing(self, choices: Choices, extra: Floats | None = None) -> Self:
        """A predictor that takes its own word for networks (n, d) that are being evaluated, with `extra` (n, e).

        Predicted means stay as they are; near such networks it is surer of them.
        """
        self._require_fit()
        x = self._columns.transform(self._raw_views(choices), self._checked_width(_checked_extra(extra, len(choices))))
        known = copy.copy(self)
        known._models = [m.believing(x) if isinstance(m, AdditiveGP) else m for m in self._models]
        return known

    @one_thread()
    def predict(self, choices: Choices, extra: Floats | None = None) -> Prediction:
        """Mean and standard deviation (n,) of the accuracy, in its unit. Does not change the predictor."""
        self._require_fit()
        choices = _checked(choices)
        if choices.shape[1] != self._n_choices:
            raise UserError(
                f"candidates have {choices.shape[1]} choices, the predictor was fitted on {self._n_choices}"
            )
        given = self._checked_width(_checked_extra(extra, len(choices)))
        mean, std = np.empty(len(choices)), np.empty(len(choices))
        for start in range(0, len(choices), _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            mean[part], std[part] = self._predict_rows(choices[part], given[part])
        return Prediction(mean, std)

    def _predict_rows(self, choices: Choices, extra: Floats) -> tuple[Floats, Floats]:
        x = self._columns.transform(self._raw_views(choices), extra)
        mean, std = np.empty(len(x)), np.empty(len(x))
        informed = np.isfinite(extra).any(1) if extra.shape[1] else np.ones(len(x), dtype=bool)
        for rows, mixture in ((informed, self._mixtures[0]), (~informed, self._mixtures[1])):
            if not rows.any():
                continue
            used = np.flatnonzero(mixture.weights)
            view = x if rows.all() else x[rows]
            parts = [self._models[at].predict(view) for at in used]
            center, spread = mix(
                np.column_stack([m for m, _ in parts]), np.column_stack([s for _, s in parts]), mixture.weights[used]
            )
            mean[rows] = self._scale.to_values(center)
            std[rows] = mixture.std_factor * _half_width(self._scale, center, spread) / _Z
        return mean, std

    def _raw_views(self, choices: Choices) -> list[Floats]:
        return [np.asarray(view(choices), dtype=np.float64) for view in self._views]

    def _ingredients(self, n: int) -> list[tuple[Ingredient, bool]]:
        """Every ingredient with whether it needs extra columns."""
        cols, seed, fast = self._columns, self._seed, self._fast
        summary, words, extra = cols.summary, cols.words, cols.extra
        found: list[tuple[Ingredient, bool]] = []

        def gp(name: str, *terms: Term) -> None:
            needs = any(np.isin(term.columns, extra).any() for term in terms)
            found.append((Ingredient(name, lambda: AdditiveGP(terms, seed=seed)), needs))

        gp("gp summary", _shared(summary))
        if len(words):
            gp("gp words + summary", _shared(words), _shared(summary))
        if not len(extra):
            everything = np.r_[summary, words]
            if not fast:
                gp("gp summary, own scales", _own(summary))
        else:
            both, everything = np.r_[summary, extra], np.r_[summary, extra, words]
            two = Term(both, np.repeat(np.arange(2), [len(summary), len(extra)]))
            gp("gp summary & extra", _shared(both))
            gp("gp summary + extra", _shared(summary), _shared(extra))
            if len(words):
                gp("gp words + (summary & extra, two scales)", _shared(words), two)
            else:
                gp("gp summary & extra, two scales", two)
            if not fast:
                gp("gp summary & extra, own scales", _own(both))
        if n >= _MIN_ROWS_TREES and not fast:
            found.append((Ingredient("trees", lambda: Trees(everything, seed=seed)), bool(len(extra))))
        return found

    def _checked_width(self, extra: Floats) -> Floats:
        expected = self._columns.n_extra
        if extra.shape[1] == expected:
            return extra
        if extra.shape[1] == 0:
            return np.full((len(extra), expected), np.nan)
        raise UserError(f"{extra.shape[1]} extra columns given, the predictor was fitted with {expected}")

    def _require_fit(self) -> None:
        if not hasattr(self, "_mixtures"):
            raise NotFittedError("call fit before predict")


@dataclass(frozen=True, slots=True)
class _Mixture:
    weights: Floats
    std_factor: float


@dataclass(frozen=True, slots=True)
class _ColumnSet:
    """Standardised columns of all views and extras, and which of them belong together."""

    center: Floats
    unit: Floats
    keep: NDArray[np.bool_]
    summary: Columns
    words: Columns
    extra: Columns
    n_extra: int
    extra_scales: tuple[NormalScores | None, ...]
    with_missing: tuple[bool, ...]

    @classmethod
    def fit(cls, views: list[Floats], extra: Floats) -> Self:
        scales, missing = [], []
        for column in extra.T:
            seen = column[np.isfinite(column)]
            scales.append(NormalScores.fit(seen) if len(seen) else None)
            missing.append(0 < len(seen) < len(column))
        blank = cls(
            np.zeros(0),
            np.ones(0),
            np.zeros(0, bool),
            np.zeros(0, np.intp),
            np.zeros(0, np.intp),
            np.zeros(0, np.intp),
            extra.shape[1],
            tuple(scales),
            tuple(missing),
        )
        groups = [views[0], np.column_stack(views[1:]) if len(views) > 1 else np.zeros((len(views[0]), 0))]
        groups.append(blank._encode_extra(extra))
        owner = np.repeat(np.arange(3), [group.shape[1] for group in groups])
        raw = np.column_stack(groups)
        unit = raw.std(0)
        keep = unit > 1e-9
        if not keep[owner == 0].any():
            raise UserError("all labelled networks have the same features", "label networks that differ")
        owner = owner[keep]
        summary, words, extras = (np.flatnonzero(owner == at) for at in range(3))
        return cls(
            raw.mean(0)[keep], unit[keep], keep, summary, words, extras, extra.shape[1], tuple(scales), tuple(missing)
        )

    def transform(self, views: list[Floats], extra: Floats) -> Floats:
        raw = np.column_stack([*views, self._encode_extra(extra)])[:, self.keep]
        raw -= self.center
        raw /= self.unit
        return np.clip(raw, -5.0, 5.0, out=raw)  # what was rare in the labels must not dominate distances

    def _encode_extra(self, extra: Floats) -> Floats:
        columns = []
        for column, scale, flagged in zip(extra.T, self.extra_scales, self.with_missing, strict=True):
            if scale is None:
                continue
            seen = np.isfinite(column)
            encoded = np.zeros(len(column))  # a missing value counts as the median
            encoded[seen] = scale.to_scores(column[seen])
            columns.append(encoded)
            if flagged:
                columns.append((~seen).astype(np.float64))
        return np.column_stack(columns) if columns else np.zeros((len(extra), 0))


def _shared(columns: Columns) -> Term:
    return Term(columns, np.zeros(len(columns), dtype=np.intp))


def _own(columns: Columns) -> Term:
    return Term(columns, np.arange(len(columns)))


def _half_width(scale: NormalScores, center: Floats, spread: Floats) -> Floats:
    """Half the width of the 90 % interval in accuracy units, floored at a thousandth of the seen spread."""
    floor = 1e-3 * float(np.ptp(scale.values)) + 1e-12
    width = scale.to_values(center + _Z * spread) - scale.to_values(center - _Z * spread)
    return np.maximum(0.5 * width, floor)


def _calibrate(held_out: Sequence[Fold], weights: Floats, accuracy: Floats) -> float:
    """Factor by which half widths must grow for the interval to cover 90 %: split-conformal on held-out rows."""
    ratios = []
    for fold in held_out:
        mean, std = mix(fold.mean, fold.std, weights)
        error = np.abs(accuracy[fold.test] - fold.scale.to_values(mean))
        ratios.append(error / _half_width(fold.scale, mean, std))
    ratio = np.sort(np.concatenate(ratios))
    n = len(ratio)
    rank = _LEVEL * (n + 1) - 1.0
    seen = max(float(np.interp(rank, np.arange(n), ratio)), 1e-3)
    # an empirical quantile of few rows is noisy, and the ingredients' own std is near the truth: draw it to one
    factor = float(seen ** (n / (n + _CALIBRATION_PRIOR_ROWS)))
    if rank > n - 1:  # too few rows to see the quantile at all: widen like a Student interval
        factor *= float(stdtrit(n - 1, 0.5 + _LEVEL / 2)) / _Z
    return factor


def _checked(choices: Choices) -> Choices:
    choices = np.asarray(choices)
    if choices.ndim != 2:
        raise UserError(f"choices have shape {choices.shape}", "expected (networks, decisions)")
    if not np.issubdtype(choices.dtype, np.integer):
        raise UserError(f"choices are {choices.dtype}", "expected integers")
    return choices


def _checked_extra(extra: Floats | None, n: int) -> Floats:
    if extra is None:
        return np.zeros((n, 0))
    extra = np.asarray(extra, dtype=np.float64)
    if extra.ndim != 2 or len(extra) != n:
        raise UserError(f"extra has shape {extra.shape}", f"expected ({n}, columns)")
    return extra


def _as_views(
    features: FeatureView | Sequence[FeatureView] | None, choices: Choices
) -> tuple[Callable[[Choices], Floats], ...]:
    if features is None:
        return generic_views(choices)
    return (features,) if callable(features) else tuple(features)
