"""The estimators by name, cheap to dear, and the rule by which `auto` picks one."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nas.errors import UnknownNameError, UserError
from nas.evaluation.estimate import Estimate, Estimator, Unit, normal_interval
from nas.evaluation.short_training import ShortTraining, trained
from nas.evaluation.supernet.config import StepLog, SupernetConfig, SupernetLog
from nas.networks.description import NetworkDescription
from nas.tasks import TaskData, task_named, task_of
from search_spaces import Architecture, Choices, SearchSpace

if TYPE_CHECKING:
    from nas.evaluation.supernet.scoring import PathScorer
    from predictors.accuracy import AccuracyPredictor

_REFERENCE_POOL = 256

Floats = NDArray[np.float64]
Scores = Callable[[Architecture], Floats]
"""Extra columns (k,) for a learned predictor, such as zero-cost scores; NaN where one has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorSetting:
    """Everything that estimators are made from; each takes what it needs."""

    space: SearchSpace
    """The space with the options that candidates may have: a supernet holds no more."""
    data: TaskData
    short: Callable[[Architecture], ShortTraining]
    """The short training that a candidate gets."""
    supernet: SupernetConfig | None = None
    """Training of the supernet, where there is one."""
    checkpoint: Path | None = None
    """File in which the supernet's training is kept and from which it goes on."""
    admissible: Callable[[Choices], NDArray[np.bool_]] | None = None
    """Candidates (n, decisions) -> whether they are worth training at all."""
    labels: Sequence[tuple[Architecture, float]] = ()
    """Networks with known accuracies, for the learned predictor."""
    scores: Scores | None = None
    """Extra columns for the learned predictor."""
    device: str = "auto"
    seed: int = 0
    callback: Callable[[StepLog], bool | None] | None = None
    """Told of the supernet's training."""


class ZeroCostEstimator:
    """Zero-cost proxies of the untrained network, each in standard deviations above random networks of the space.

    The value is their mean. The random networks, drawn with the seed, make values of different calls comparable.
    """

    unit: Unit = "standard deviations"

    def __init__(
        self,
        space: SearchSpace,
        data: TaskData,
        *,
        images: int = 16,
        reference: int = 8,
        admissible: Callable[[Choices], NDArray[np.bool_]] | None = None,
        seed: int = 0,
    ) -> None:
        """`images` of the one mini-batch that is used, `reference` networks to compare with (at least two), preferably
        `admissible` ones."""
        self._space, self._data, self._images, self._seed = space, data, images, seed
        start = time.perf_counter()
        rows = _reference(space, reference, admissible, np.random.default_rng(seed))
        scores = np.array([self._scores(space.architecture(row)) for row in rows])
        seen = np.isfinite(scores)
        counts = np.maximum(seen.sum(axis=0), 1)
        self._mean = np.where(seen, scores, 0.0).sum(axis=0) / counts
        spread = np.sqrt((np.where(seen, scores - self._mean, 0.0) ** 2).sum(axis=0) / counts)
        self._spread = np.where(spread > 0, spread, 1.0)  # a proxy that says the same of all says it of all
        self.prepared_s = time.perf_counter() - start

    def estimate(self, archs: Sequence[Architecture]) -> list[Estimate]:
        return [self._estimate(arch) for arch in archs]

    def _estimate(self, arch: Architecture) -> Estimate:
        start = time.perf_counter()
        standard = (self._scores(arch) - self._mean) / self._spread
        if np.isnan(standard).all():
            return _failed(arch, start, "no zero-cost score exists for this network")
        value = float(np.nanmean(standard))  # a score that does not exist is left out
        return Estimate(arch=arch, value=value, seconds=time.perf_counter() - start)

    def _scores(self, arch: Architecture) -> Floats:
        from nas.evaluation.zero_cost import candidate_scores

        return candidate_scores(self._space, self._data, arch, self._images, self._seed)


class ShortTrainingEstimator:
    """The accuracy after a short training."""

    unit: Unit = "accuracy"
    prepared_s = 0.0

    def __init__(
        self,
        space: SearchSpace,
        data: TaskData,
        short: Callable[[Architecture], ShortTraining],
    ) -> None:
        """`short` says how a candidate is trained."""
        self._space, self._data, self._short = space, data, short

    def estimate(self, archs: Sequence[Architecture]) -> list[Estimate]:
        return [self._estimate(arch) for arch in archs]

    def _estimate(self, arch: Architecture) -> Estimate:
        description = NetworkDescription.of_architecture(self._space, arch, self._data.output_size)
        short, start = self._short(arch), time.perf_counter()
        try:
            _, result = trained(description, self._data, short, validates="last")
        except (RuntimeError, MemoryError) as error:  # out of memory, or an operator that torch refuses
            return _failed(arch, start, f"{type(error).__name__}: {error}")
        if result.stopped == "diverged":
            return _failed(arch, start, "training diverged")
        curve = tuple(log.val_accuracy for log in result.curve if math.isfinite(log.val_accuracy))
        std = short.standard_error(result.accuracy, self._data)
        return _seen(arch, result.accuracy, std, time.perf_counter() - start, curve)


class SupernetEstimator:
    """The accuracy of a candidate's path through a trained supernet."""

    unit: Unit = "accuracy"

    def __init__(self, scorer: "PathScorer", log: SupernetLog) -> None:
        """`log` of the supernet's training: a supernet that diverged estimates nothing."""
        self._scorer, self._log = scorer, log

    @property
    def prepared_s(self) -> float:
        return self._log.seconds

    def estimate(self, archs: Sequence[Architecture]) -> list[Estimate]:
        return [self._estimate(arch) for arch in archs]

    def _estimate(self, arch: Architecture) -> Estimate:
        start = time.perf_counter()
        if self._log.diverged:
            return _failed(arch, start, f"the supernet {self._log.stopped}")
        try:
            score = self._scorer.score(arch)
        except (RuntimeError, MemoryError) as error:
            return _failed(arch, start, f"{type(error).__name__}: {error}")
        std = task_of(self._scorer.data).standard_error(score.accuracy, self._scorer.data.val)
        return _seen(arch, score.accuracy, std, score.seconds)


class PredictorEstimator:
    """A predictor that learned from networks with known accuracies."""

    unit: Unit = "accuracy"

    def __init__(
        self,
        space: SearchSpace,
        labels: Sequence[tuple[Architecture, float]],
        scores: Scores | None = None,
        seed: int = 0,
    ) -> None:
        """`labels` are at least four networks with their accuracies; `scores` gives extra columns, if any."""
        start = time.perf_counter()
        self._space, self._scores = space, scores
        self._predictor: AccuracyPredictor = self._fitted(labels, seed)
        self.prepared_s = time.perf_counter() - start

    def _fitted(self, labels: Sequence[tuple[Architecture, float]], seed: int) -> "AccuracyPredictor":
        from predictors.accuracy import AccuracyPredictor

        archs = [arch for arch, _ in labels]
        predictor = AccuracyPredictor(features=(self._space.features, self._encoded), seed=seed)
        accuracy = np.array([accuracy for _, accuracy in labels], dtype=np.float64)
        return predictor.fit(self._space.choices(archs), accuracy, self._extra(archs))

    def estimate(self, archs: Sequence[Architecture]) -> list[Estimate]:
        if not archs:
            return []
        start = time.perf_counter()
        prediction = self._predictor.predict(self._space.choices(archs), self._extra(archs))
        seconds = (time.perf_counter() - start) / len(archs)
        found = []
        for arch, mean, std in zip(archs, prediction.mean.tolist(), prediction.std.tolist(), strict=True):
            interval = normal_interval(mean, std)
            found.append(Estimate(arch=arch, value=mean, std=std, interval=interval, seconds=seconds))
        return found

    def _encoded(self, choices: Choices) -> Floats:
        return self._space.encode(choices).astype(np.float64)

    def _extra(self, archs: Sequence[Architecture]) -> Floats | None:
        return None if self._scores is None else np.array([self._scores(arch) for arch in archs])


def _reference(
    space: SearchSpace, count: int, admissible: Callable[[Choices], NDArray[np.bool_]] | None, rng: np.random.Generator
) -> Choices:
    """Random networks, the admissible ones first."""
    if admissible is None:
        return space.sample(count, rng)
    rows = space.sample(_REFERENCE_POOL, rng)
    return rows[np.argsort(~admissible(rows), kind="stable")][:count]


def _failed(arch: Architecture, start: float, reason: str) -> Estimate:
    return Estimate(arch=arch, value=None, seconds=time.perf_counter() - start, failure=reason)


def _seen(
    arch: Architecture, accuracy: float, std: float | None, seconds: float, curve: tuple[float, ...] = ()
) -> Estimate:
    """An accuracy on validation images, whose number is all that its standard error and interval speak of."""
    interval = None if std is None else normal_interval(accuracy, std)
    return Estimate(arch=arch, value=accuracy, std=std, interval=interval, seconds=seconds, curve=curve)


def _zero_cost(setting: EstimatorSetting) -> Estimator:
    return ZeroCostEstimator(setting.space, setting.data, admissible=setting.admissible, seed=setting.seed)


def _short(setting: EstimatorSetting) -> Estimator:
    return ShortTrainingEstimator(setting.space, setting.data, setting.short)


def _supernet(setting: EstimatorSetting) -> Estimator:
    """Trains the supernet, or goes on with the one in the checkpoint: this can take all the time it is given."""
    from nas.evaluation.supernet.network import Supernet, weight_sharing
    from nas.evaluation.supernet.scoring import PathScorer
    from nas.evaluation.supernet.training import train_supernet

    data = setting.data
    assert setting.supernet is not None
    supernet = Supernet(weight_sharing(setting.space), data.output_size, seed=setting.seed)
    log = train_supernet(
        supernet,
        data,
        setting.supernet,
        checkpoint=setting.checkpoint,
        admissible=setting.admissible,
        device=setting.device,
        callback=setting.callback,
    )
    scorer = PathScorer(supernet=supernet, data=data, precision=log.precision, device=setting.device, seed=setting.seed)
    return SupernetEstimator(scorer, log)


def _predictor(setting: EstimatorSetting) -> Estimator:
    return PredictorEstimator(setting.space, setting.labels, setting.scores, setting.seed)


@dataclass(frozen=True, slots=True)
class EstimatorKind:
    """One line of the table of estimators."""

    make: Callable[[EstimatorSetting], Estimator]
    unit: Unit
    description: str
    shares_weights: bool = False
    """True if it needs a space whose networks can share weights."""


ESTIMATORS: Mapping[str, EstimatorKind] = {
    "zero-cost": EstimatorKind(_zero_cost, "standard deviations", "scores of the untrained network"),
    "short": EstimatorKind(_short, "accuracy", "a short training of each candidate"),
    "supernet": EstimatorKind(
        _supernet, "accuracy", "one training of shared weights, then seconds per candidate", True
    ),
    "predictor": EstimatorKind(_predictor, "accuracy", "learned from networks with known accuracies"),
}
"""Every estimator by name; `auto` is `choose_estimator`."""


def make_estimator(name: str, setting: EstimatorSetting) -> Estimator:
    """The estimator `name`.

    Raises `UnknownNameError` with the closest known names, and `UserError` for one that the data's task has no use for
    or for labels that are no class of the data.
    """
    require_estimator(name, setting.data.task)
    task_of(setting.data).check(setting.data)
    return ESTIMATORS[name].make(setting)


def require_estimator(name: str, task: str, space: SearchSpace | None = None) -> None:
    """Raises `UserError` for an estimator that does not exist or cannot evaluate networks of a task, or of `space`."""
    if name not in ESTIMATORS:
        raise UnknownNameError("estimator", name, ESTIMATORS)
    known = task_named(task).estimators
    if name not in known:
        raise UserError(
            f"the estimator {name!r} cannot evaluate networks for {task}", f"give one of {', '.join(known)}"
        )
    if ESTIMATORS[name].shares_weights and space is not None:
        from nas.evaluation.supernet.network import weight_sharing

        weight_sharing(space)


MIN_SHORT_TRAININGS = 3
"""Smallest number of short trainings that tell something: with fewer, hardly anything is compared."""
MIN_LABELS = 8
"""Networks with known accuracies before a learned predictor may take over."""
SUPERNET_EPOCHS = 20
"""Passes over the training images below which nothing is known of a supernet's order of candidates."""
SUPERNET_SHARE = 0.6
"""Share of the time for estimates that may go into the supernet; the rest scores candidates."""


def choose_estimator(budget_s: float, device: str, *, short_s: float, labels: int = 0) -> tuple[str, str]:
    """The estimator that `auto` stands for, and why: short trainings, unless enough are known and no time is left.

    An estimator that does not order networks better than counting MACs is never chosen: on 24 networks trained alone
    the supernet (Kendall tau .35) and the mean of zero-cost scores (.30) were no better than MACs (.40), short
    trainings (.52 and more) and a predictor taught by them (.48) were. docs/accuracy.md has the measurements.

    Args:
        budget_s: seconds that may be spent on estimates.
        device: where they run, in words.
        short_s: seconds of one short training of a typical candidate.
        labels: networks of this search that were trained briefly already; estimates in another unit do not fit them.
    """
    trainings = int(budget_s / short_s)
    told = f"{budget_s:.0f} s for estimates on {device}"
    each = f"short trainings of about {short_s:.1f} s"
    if trainings < MIN_SHORT_TRAININGS and labels >= MIN_LABELS:
        return "predictor", f"{told} pay for {trainings} {each}, and {labels} networks are known already"
    if labels:
        return "short", f"{told} pay for {trainings} {each}, beside {labels} that are known already"
    return "short", f"{told} pay for {trainings} {each}"
