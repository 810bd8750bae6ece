"""Final accuracy from the first epochs of a training, with an interval, and stopping trainings that cannot win.

Whole curves are modelled at once: the logits of the validation accuracy after epochs 1 to E are jointly normal with
unknown mean and covariance (a normal-inverse-Wishart prior), so what an unfinished curve says about its end is a
Student distribution in closed form. The prior is worth a few curves and comes from simulated ones: power laws and
exponentials that saturate, as in Domhan et al. 2015 (https://www.ijcai.org/Proceedings/15/Papers/487.pdf), with the
late rise of a learning rate that decays to zero. Finished curves of the same recipe take over as they come, as in Baker
et al. 2018 (https://arxiv.org/abs/1705.10823), so a recipe whose curves cross is learned, not assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import t as student

from nas.errors import UserError
from nas.training.result import EpochRecord

Floats = NDArray[np.float64]

_EDGE = 0.005  # accuracies are moved this far inside (0, 1) before the logit
_SIMULATED = 4000
_PRIOR_CURVES = 3.0  # how many finished curves the simulated ones weigh as much as


@dataclass(frozen=True, slots=True)
class FinalAccuracy:
    """Student distribution of the logit of a final accuracy."""

    center: float
    scale: float
    degrees: float

    @property
    def median(self) -> float:
        """Fraction of the validation images."""
        return float(expit(self.center))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Central interval (fractions) that holds the final accuracy with probability `level`."""
        reach = self.scale * float(student.ppf(0.5 + level / 2, self.degrees))
        return float(expit(self.center - reach)), float(expit(self.center + reach))

    def chance_above(self, accuracy: float) -> float:
        """Probability that the final accuracy exceeds `accuracy` (a fraction)."""
        distance = (_to_logits(np.array([accuracy]))[0] - self.center) / self.scale
        return float(student.sf(distance, self.degrees))


class CurveExtrapolator:
    """Learns how curves of one recipe end; every curve holds the accuracy after epochs 1, 2, ... as fractions."""

    def __init__(self, epochs: int, *, classes: int = 10, seed: int = 0) -> None:
        """`epochs` of a whole training, `classes` for the accuracy of guessing, `seed` of the simulated curves."""
        self._epochs = epochs
        self._classes = classes
        self._seed = seed

    def fit(self, curves: Sequence[Sequence[float]] = ()) -> Self:
        """Learn from finished curves, each of `epochs` values; forgets earlier fits. No curves: the prior alone.

        Raises `UserError` for a curve of another length or with values that are no fractions: a diverged training
        has no curve to learn from.
        """
        for curve in curves:
            if len(curve) != self._epochs:
                raise UserError(f"a finished curve has {len(curve)} epochs, expected {self._epochs}", "leave it out")
        prior = _to_logits(_simulated(self._epochs, self._classes, self._seed))
        center, weight = prior.mean(0), _PRIOR_CURVES
        degrees = _PRIOR_CURVES + self._epochs + 1
        # the inverse-Wishart's mean is scatter / (degrees - epochs - 1): the simulated covariance
        scatter = np.cov(prior.T).reshape(self._epochs, self._epochs) * _PRIOR_CURVES
        if len(curves):
            seen = _to_logits(_checked(np.array(curves, dtype=np.float64)))
            n, mean = len(seen), seen.mean(0)
            off = mean - center
            scatter = scatter + (seen - mean).T @ (seen - mean) + np.outer(off, off) * weight * n / (weight + n)
            center, weight, degrees = (weight * center + n * mean) / (weight + n), weight + n, degrees + n
        self._degrees = degrees - self._epochs + 1
        self._center = center
        self._spread = scatter * (weight + 1) / (weight * self._degrees)
        return self

    def predict(self, curve: Sequence[float]) -> FinalAccuracy:
        """What a curve's first epochs (one or more) say about its end; a finished curve is its own end.

        Raises `UserError` for an empty curve, too long a one, or values that are no fractions.
        """
        if not hasattr(self, "_spread"):
            raise RuntimeError("call fit before predict")
        k = len(curve)
        if not 1 <= k <= self._epochs:
            raise UserError(f"a curve of {k} epochs cannot be extrapolated to {self._epochs}", "give 1 or more")
        off = _to_logits(_checked(np.array(curve, dtype=np.float64))) - self._center[:k]
        if k == self._epochs:
            return FinalAccuracy(float(off[-1] + self._center[-1]), 1e-6, self._degrees)
        # conditional of a multivariate Student distribution: Ding 2016, https://arxiv.org/abs/1402.6816
        known, across = self._spread[:k, :k], self._spread[:k, -1]
        gain = np.linalg.solve(known, np.column_stack([across, off]))
        left = float(self._spread[-1, -1] - across @ gain[:, 0])
        surprise = float(off @ gain[:, 1])
        factor = (self._degrees + surprise) / (self._degrees + k)
        return FinalAccuracy(
            float(self._center[-1] + across @ gain[:, 1]),
            float(np.sqrt(max(left, 1e-12) * factor)),
            self._degrees + k,
        )


@dataclass(slots=True)
class StopBadOnes:
    """Callback of `nas.training.loop.train`: ends a training that is unlikely to reach `target`.

    Give a new one to each training. `predicted` holds the last extrapolation: the label of a training that was stopped.
    """

    extrapolator: CurveExtrapolator
    target: float
    """Accuracy (fraction) that a candidate must reach to matter, say that of the third best so far."""
    chance: float = 0.05
    """Stop below this probability of reaching it."""
    min_epochs: int = 2
    predicted: FinalAccuracy | None = None
    _curve: list[float] = field(default_factory=list, init=False, repr=False)

    def __call__(self, log: EpochRecord) -> bool:
        """True stops the training after this epoch."""
        self._curve.append(log.val_accuracy)
        self.predicted = self.extrapolator.predict(self._curve)
        return len(self._curve) >= self.min_epochs and self.predicted.chance_above(self.target) < self.chance


def _simulated(epochs: int, classes: int, seed: int) -> Floats:
    """Curves (n, epochs): chance + (end - chance) x progress; progress saturates, and part of it comes late.

    Half saturate as a power law, half exponentially, some within an epoch and some hardly at all.
    """
    rng = np.random.default_rng(seed)
    n, when = _SIMULATED, np.arange(1, epochs + 1) / epochs
    chance = 1.0 / classes
    end = chance + (0.99 - chance) * rng.beta(1.5, 1.0, (n, 1))
    speed, bend = np.exp(rng.uniform(np.log(0.5), np.log(50.0), (n, 1))), rng.uniform(0.3, 1.5, (n, 1))
    power = (1.0 - (1.0 + speed * when) ** -bend) / (1.0 - (1.0 + speed) ** -bend)
    rate = np.exp(rng.uniform(np.log(0.5), np.log(20.0), (n, 1)))
    exponential = (1.0 - np.exp(-rate * when)) / (1.0 - np.exp(-rate))
    late = rng.uniform(0.0, 0.6, (n, 1))
    progress = (1.0 - late) * np.where(rng.random((n, 1)) < 0.5, power, exponential) + late * when
    # noise of one epoch's validation shrinks as the learning rate does
    noise = (0.03 * (1.0 - when) + 0.007) * rng.standard_normal((n, epochs))
    # no training follows a formula: a random walk that ends up a few points away from it
    wander = np.cumsum(0.03 / np.sqrt(epochs) * rng.standard_normal((n, epochs)), axis=1)
    curves: Floats = np.clip(chance + (end - chance) * progress + wander + noise, 0.0, 1.0)
    return curves


def _to_logits(accuracy: Floats) -> Floats:
    return np.asarray(logit(np.clip(accuracy, _EDGE, 1.0 - _EDGE)), dtype=np.float64)


def _checked(accuracy: Floats) -> Floats:
    if not (np.isfinite(accuracy).all() and (accuracy >= 0).all() and (accuracy <= 1).all()):
        raise UserError("a learning curve holds values that are no fractions", "leave out trainings that diverged")
    return accuracy
