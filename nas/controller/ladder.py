"""A front from samplers that look for accuracy alone: they take turns under ever tighter limits on latency."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from nas.controller.prediction.scoring import CandidateScorer
from nas.samplers.base import INTERRUPTED_ATTR
from nas.targets.latency import Z_90

if TYPE_CHECKING:
    from optuna.study import Study

RUNGS = (1.0, 0.1, 0.4, 0.02)
"""Quantiles of the latencies that keep the limits, in the order of their turns; the first is no further limit."""
SAMPLES = 2048


def rungs_ms(scorer: CandidateScorer, seed: int) -> list[float]:
    """The limits of the turns on the median call, in ms: from what random feasible networks are predicted to take."""
    sampled = scorer.space.sample(SAMPLES, np.random.default_rng(seed))
    kept = sampled[scorer.feasible(sampled)]
    if not len(kept):
        return [float("inf")]
    _, prediction = scorer.model.fastest(scorer.space, kept, scorer.size)
    upper = prediction.mean + Z_90 * prediction.std
    return [float("inf"), *(float(np.quantile(upper, q)) for q in RUNGS[1:])]


class LadderSampler(BaseSampler):
    """Asks one of several samplers, each trial the next.

    Whose turn it is follows from the study alone, so a search that was interrupted goes on as it would have.
    """

    def __init__(self, samplers: Sequence[BaseSampler]) -> None:
        self.samplers = tuple(samplers)

    def infer_relative_search_space(self, study: "Study", trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._turn(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: "Study", trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._turn(study, trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: "Study", trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._turn(study, trial).sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: "Study", trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._turn(study, trial).after_trial(study, trial, state, values)

    def _turn(self, study: "Study", trial: FrozenTrial) -> BaseSampler:
        earlier = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        count = sum(not t.user_attrs.get(INTERRUPTED_ATTR) for t in earlier)
        return self.samplers[count % len(self.samplers)]


def ladder(scorer: CandidateScorer, seed: int, make: Callable[[Any], BaseSampler]) -> LadderSampler:
    """A sampler for a front; `make` gives one for a question of feasibility (`Feasible`)."""
    limits = rungs_ms(scorer, seed)
    return LadderSampler([make(scorer.feasible_within(ms) if np.isfinite(ms) else scorer.feasible) for ms in limits])
