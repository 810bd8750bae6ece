"""The goal of a proposal, and the promise of a candidate by the predictors' word."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nas.samplers.acquisition import log_expected_improvement, log_feasibility
from predictors.accuracy import AccuracyPredictor
from predictors.base import LatencyPredictor
from search_spaces import Choices

Floats = NDArray[np.float64]

_CAUTION = 2.0
"""Power of the chance to keep a limit. With one, half of the evaluations were spent just over it: neighbours share the
predictor's errors, so that one disappointment says more than its share about the next candidate."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A quantity that is known of evaluated architectures alone and must be at most `value`."""

    predictor: LatencyPredictor
    value: float


@dataclass(frozen=True, slots=True)
class Goal:
    """More accuracy than `best` within `limits`.

    A candidate promises the log of its expected improvement times the squared chances to keep the limits (expected
    constrained improvement: Gardner et al. 2014, with more caution).

    Attributes:
        accuracy: fitted to scores of accuracies.
        best: score of the best network so far that keeps the limits.
        limits: what must be kept, besides what is known without an evaluation.
    """

    accuracy: AccuracyPredictor
    best: float
    limits: tuple[Limit, ...] = ()

    def believing(self, pending: Choices, extra: Floats | None = None) -> "Goal":
        """The goal as if the networks `pending` (n, d), which are being evaluated, came out as predicted.

        A candidate like one of them promises less: its prediction is surer, and there is as much to surpass.
        `extra`: their zero-cost scores (n, k), where those are known.
        """
        expected = float(self.accuracy.predict(pending, extra).mean.max())
        return replace(self, accuracy=self.accuracy.believing(pending, extra), best=max(self.best, expected))

    def __call__(self, choices: Choices, extra: Floats | None = None) -> Floats:
        """Promise (n,) of candidates (n, decisions), with their zero-cost scores (n, k) where those are known."""
        score = self.accuracy.predict(choices, extra)
        promise = log_expected_improvement(score.mean, score.std, self.best)
        for limit in self.limits:
            found = limit.predictor.predict(choices)
            promise = promise + _CAUTION * log_feasibility(found.mean, np.maximum(found.std, 1e-9), limit.value)
        return promise
