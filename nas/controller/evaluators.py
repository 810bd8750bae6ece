"""Evaluation of candidates: by short trainings, by one estimator, or by a predictor that learns from the former."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import optuna

from nas.controller.trials import SHORT, trained_briefly
from nas.evaluation.estimate import Estimator
from nas.evaluation.estimators import MIN_LABELS, EstimatorSetting, make_estimator
from nas.evaluation.supernet.config import StepLog
from nas.samplers import architecture_of
from search_spaces import Architecture, SearchSpace

PREDICTOR = "predictor"
MOST_ESTIMATES = 200
"""Candidates of one study that are estimated without a training: far more than can be compared in a last round, and the
time that is left is better spent there."""

Evaluator = Callable[[optuna.Study], tuple[str, Estimator] | None]
"""Study -> the estimator of its next candidate with its name; None: that candidate is trained briefly."""

Told = Callable[[StepLog], bool | None]
Labels = Sequence[tuple[Architecture, float]]


def all_are_trained(study: optuna.Study) -> None:
    """Short trainings and nothing else."""


@dataclass(slots=True)
class SingleEstimator:
    """An estimator that trains no candidate, made when it is first needed."""

    name: str
    make: Callable[[Told | None], Estimator]
    made: Estimator | None = field(default=None, init=False, repr=False)

    def __call__(self, study: optuna.Study) -> tuple[str, Estimator]:
        return self.name, self.prepare()

    def prepare(self, told: Told | None = None) -> Estimator:
        """Make it now; `told` hears of a supernet's training."""
        if self.made is None:
            self.made = self.make(told)
        return self.made


@dataclass(slots=True)
class TrainThenPredict:
    """Networks of a study are trained briefly until there are `labels` of them; from then on they are predicted.

    What a predictor learns from is its own study alone, so that the random random_baseline learns from random networks.
    """

    space: SearchSpace
    make: Callable[[Labels], Estimator]
    labels: int = MIN_LABELS
    _fitted: dict[str, tuple[int, Estimator]] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, study: optuna.Study) -> tuple[str, Estimator] | None:
        trials = trained_briefly(study)
        if len(trials) < self.labels:
            return None
        fitted = self._fitted.get(study.study_name)
        if fitted is None or fitted[0] != len(trials):
            known = [(architecture_of(t, self.space), t.values[0]) for t in trials]
            fitted = len(trials), self.make([(arch, value) for arch, value in known if arch is not None])
            self._fitted[study.study_name] = fitted
        return PREDICTOR, fitted[1]


MIN_FITTED = 4
"""Labels without which a predictor cannot be fitted."""


def labels_wanted(max_trials: int | None) -> int:
    """Number of candidates trained for a predictor: at most two of three, so that there is something to predict."""
    return MIN_LABELS if max_trials is None else max(MIN_FITTED, min(MIN_LABELS, 2 * max_trials // 3))


def make_evaluator(name: str, setting: EstimatorSetting, max_trials: int | None) -> Evaluator:
    """The evaluator for the estimator `name`; nothing is computed yet."""
    if name == SHORT:
        return all_are_trained
    if name == PREDICTOR:
        return TrainThenPredict(
            setting.space,
            lambda labels: make_estimator(PREDICTOR, replace(setting, labels=labels)),
            labels_wanted(max_trials),
        )
    return SingleEstimator(name, lambda told: make_estimator(name, replace(setting, callback=told)))


def most_candidates(name: str, max_trials: int | None) -> int | None:
    """Largest number of candidates that a study evaluates; None: as many as the time allows."""
    if name == SHORT:
        return max_trials
    most = MOST_ESTIMATES + (labels_wanted(max_trials) if name == PREDICTOR else 0)
    return most if max_trials is None else min(most, max_trials)


def trains(name: str) -> bool:
    """True if the estimator `name` trains candidates, some or all."""
    return name in (SHORT, PREDICTOR)


def prepared_s(evaluator: Evaluator) -> float:
    """Seconds that an estimator took before its first candidate, where one was made in this process."""
    return evaluator.made.prepared_s if isinstance(evaluator, SingleEstimator) and evaluator.made is not None else 0.0
