"""Predictors learnt from a study's finished trials."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from nas.errors import UserError
from nas.samplers.base import Known
from nas.samplers.goal import Limit
from predictors.accuracy import AccuracyPredictor
from predictors.accuracy_features import FeatureView
from predictors.base import LatencyPredictor, Prediction
from predictors.target_scale import NormalScores
from search_spaces import Choices

if TYPE_CHECKING:
    from optuna.study import Study

PROXIES_ATTR = "proxies"
"""Trial attribute with the zero-cost scores of its network."""
LATENCY_CONSTRAINT = "latency_ms"
"""Name of the constraint "latency minus limit" of a trial."""

Floats = NDArray[np.float64]
Features = FeatureView | Sequence[FeatureView]
Worth = Callable[[Floats, Choices], Floats]
"""(values (n,) of finished trials, higher is better, their networks (n, decisions)) -> (n,): what they are worth."""


@dataclass(frozen=True, slots=True)
class LearntLatency:
    """A latency that is known of evaluated architectures alone, and how it is predicted for the others.

    Attributes:
        predictor: makes an unfitted predictor; it is given choices as option numbers, as everywhere in a space.
        of_trial: the latency in ms that a finished trial carries.
        limit_ms: what must be kept; None where latency is the study's second objective.
        constraint: name of the trial's constraint that says the same as `limit_ms`.
    """

    predictor: Callable[[], LatencyPredictor]
    of_trial: Callable[[FrozenTrial], float]
    limit_ms: float | None = None
    constraint: str = LATENCY_CONSTRAINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Predictors fitted to the finished trials of a study, and what they were fitted to.

    Attributes:
        accuracy: predicts scores.
        scores: (n,) of the accuracies, higher is better.
        kept: (n,) bool, the trial keeps all constraints.
        limits: those that had to be learnt because some trial broke them.
        latency, latencies_ms: predictor and (n,) values of the second objective; None where there is just one.
    """

    accuracy: AccuracyPredictor
    scores: Floats
    kept: NDArray[np.bool_]
    limits: tuple[Limit, ...]
    latency: LatencyPredictor | None = None
    latencies_ms: Floats | None = None


def learn(
    study: "Study",
    known: Known,
    features: Features,
    latency: LearntLatency | None,
    *,
    worth: Worth | None = None,
    proxies: bool = False,
    fast: bool = False,
    seed: int = 0,
) -> Learnt:
    """Fit to the complete trials of `known`; raises `UserError` for objectives that are none of ours.

    Args:
        features: views from which accuracies, and constraints that nobody else predicts, are predicted.
        latency: how the latency is predicted; None: like any other constraint or second objective.
        worth: what the first objective's values are worth; None: what they say.
        proxies: use the zero-cost scores that trials carry.
        fast: leave out the predictor's slower ingredients.
    """
    if len(study.directions) > 2:
        raise UserError(
            f"a study with {len(study.directions)} objectives is more than this sampler can do",
            "give it accuracy, or accuracy and latency, and set constraints for the rest",
        )
    sign = 1.0 if study.directions[0] == StudyDirection.MAXIMIZE else -1.0
    values = sign * np.array([t.values[0] for t in known.complete], dtype=np.float64)
    if worth is not None:
        values = worth(values, known.choices)
    # accuracies are skewed: a few networks fail altogether. On the scale of their ranks a prediction's spread is
    # symmetric, and a network is not taken for promising only because it may turn out very bad
    scores = NormalScores.fit(values).to_scores(values)
    accuracy = AccuracyPredictor(features=features, seed=seed, fast=fast)
    accuracy.fit(known.choices, scores, proxies_of(known.complete) if proxies else None)
    second = len(study.directions) == 2
    if second and latency is None:
        latency = LearntLatency(lambda: _FromFeatures(features), _second_objective(study.directions[1]))
    latencies_ms, predictor = None, None
    if latency is not None:
        latencies_ms = np.array([latency.of_trial(t) for t in known.complete], dtype=np.float64)
        predictor = latency.predictor().fit(known.choices, latencies_ms)
    limits = []
    if predictor is not None and latency is not None and latency.limit_ms is not None:
        limits.append(Limit(predictor, latency.limit_ms))
    for name, broken_by in _constraints(known.complete).items():
        if (latency is None or name != latency.constraint) and (broken_by > 0).any():
            limits.append(Limit(_FromFeatures(features).fit(known.choices, broken_by), 0.0))
    return Learnt(
        accuracy=accuracy,
        scores=scores,
        kept=np.array([all(c <= 0 for c in t.constraints.values()) for t in known.complete], dtype=bool),
        limits=tuple(limits),
        latency=predictor if second else None,
        latencies_ms=latencies_ms if second else None,
    )


def proxies_of(trials: Sequence[FrozenTrial]) -> Floats | None:
    """Zero-cost scores (n, k) that trials carry, NaN where missing; None where no trial has any."""
    rows = [t.user_attrs.get(PROXIES_ATTR) for t in trials]
    width = max((len(r) for r in rows if r), default=0)
    if not width:
        return None
    return np.array(
        [[np.nan if v is None else v for v in r] if r else [np.nan] * width for r in rows], dtype=np.float64
    )


class _FromFeatures:
    """Any quantity, predicted from the features that accuracies are predicted from."""

    def __init__(self, features: Features) -> None:
        self._inner = AccuracyPredictor(features=features, fast=True)

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        self._inner.fit(choices, np.asarray(latency_ms, dtype=np.float64))
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        return self._inner.predict(choices)


def _second_objective(direction: StudyDirection) -> Callable[[FrozenTrial], float]:
    """The second objective as something positive of which less is better, such as a latency."""

    def of_trial(trial: FrozenTrial) -> float:
        value = float(trial.values[1])
        if value <= 0:
            raise UserError(
                f"trial {trial.number} has {value:g} as its second objective, which is not positive",
                "give the sampler `latency` with the latency that a trial carries",
            )
        return value if direction == StudyDirection.MINIMIZE else 1.0 / value

    return of_trial


def _constraints(trials: Sequence[FrozenTrial]) -> Mapping[str, Floats]:
    """(n,) values of each constraint that all trials carry, by name."""
    names = [name for name in trials[0].constraints if all(name in t.constraints for t in trials)]
    return {name: np.array([t.constraints[name] for t in trials], dtype=np.float64) for name in names}
