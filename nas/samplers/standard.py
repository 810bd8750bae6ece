"""The baselines: random candidates, and Optuna's own samplers made to propose no architecture twice."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from nas.samplers.base import (
    Feasible,
    Known,
    SpaceSampler,
    distinct,
    distributions,
    only_feasible,
    random_feasible,
    row_of,
    untried,
)
from search_spaces import Choices, SearchSpace

if TYPE_CHECKING:
    from optuna.study import Study

_MUTANTS = 64


class RandomFeasibleSampler(SpaceSampler):
    """Random candidates under the same limits, nothing learned."""

    def __init__(self, space: SearchSpace, feasible: Feasible | None = None, *, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.feasible = feasible

    def propose(self, study: "Study", trial: FrozenTrial, known: Known) -> Choices:
        return row_of(random_feasible(self.space, self.feasible, 1, self.rng(known), known.tried))


class DistinctSampler(SpaceSampler):
    """An Optuna sampler that is asked again when it proposes a network that was tried, or one over a known limit.

    Different parameters can stand for one network (`SearchSpace.canonical`), so Optuna's samplers would evaluate it
    again. The sampler sees the canonical parameters, and constraints as trials carry them (`Trial.set_constraint`).
    It is made afresh for each proposal, seeded by how far the study is: what it does follows from the storage alone.
    """

    def __init__(
        self,
        space: SearchSpace,
        make: Callable[[int], BaseSampler],
        *,
        feasible: Feasible | None = None,
        attempts: int = 16,
        seed: int = 0,
    ) -> None:
        """`make` gives Optuna's sampler for a seed; after `attempts` proposals the last one is changed at random."""
        super().__init__(space, seed)
        self.make = make
        self.feasible = feasible
        self.attempts = attempts

    def propose(self, study: "Study", trial: FrozenTrial, known: Known) -> Choices:
        rng = self.rng(known)
        asked = self.make(int(rng.integers(2**31)))
        for _ in range(self.attempts):
            row = self._ask(asked, study, trial)
            if len(self._new(row[None], known)):
                return row
        for rate in (0.0, 0.2, 0.5):
            mutants = self._new(self.space.mutate(np.repeat(row[None], _MUTANTS, axis=0), rng, rate), known)
            if len(mutants):
                return row_of(mutants)
        return row_of(random_feasible(self.space, self.feasible, 1, rng, known.tried))

    def after_trial(
        self, study: "Study", trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self.make(self.seed).after_trial(study, trial, state, values)

    def _ask(self, asked: BaseSampler, study: "Study", trial: FrozenTrial) -> Choices:
        params = asked.sample_relative(study, trial, asked.infer_relative_search_space(study, trial))
        row = []
        for decision, (name, distribution) in zip(self.space.decisions, distributions(self.space).items(), strict=True):
            if name in params:
                value = params[name]
            elif distribution.single():
                value = distribution.choices[0]
            else:
                value = asked.sample_independent(study, trial, name, distribution)
            row.append(decision.index(value))
        return row_of(self.space.canonical(np.array([row], dtype=np.int64)))

    def _new(self, choices: Choices, known: Known) -> Choices:
        return only_feasible(untried(distinct(choices), known.tried), self.feasible)
