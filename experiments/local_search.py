"""Local search, the baseline that is hard to beat on tables of networks (White et al. 2021), as an Optuna sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from nas.samplers.acquisition import pareto_front
from nas.samplers.base import Known, SpaceSampler, random_feasible, row_ids, row_of, untried
from nas.samplers.population import neighbours
from search_spaces import Choices, SearchSpace

if TYPE_CHECKING:
    from optuna.study import Study

STARTUP = 10
"""Random networks before an evolution of the front begins, as many as Optuna's samplers make."""


class LocalSearchSampler(SpaceSampler):
    """Neighbours in random order, moving on as soon as one is better; a random restart where none is left.

    With one objective, better is the more accurate of two that keep their constraints, or else the one that breaks them
    less; the climb starts from a single random network. With two objectives, neighbours of a random network of the
    front, as in an evolution whose population is the front.
    """

    def propose(self, study: Study, trial: FrozenTrial, known: Known) -> Choices:
        rng = self.rng(known)
        signs = np.array([1.0 if d == StudyDirection.MAXIMIZE else -1.0 for d in study.directions])
        values = signs * np.array([t.values for t in known.complete]).reshape(-1, len(signs))
        if len(signs) == 1:
            excess = np.array([sum(max(c, 0.0) for c in t.constraints.values()) for t in known.complete])
            parents = [_climb(self.space, known, list(zip(-excess, values[:, 0], strict=True)))] if len(values) else []
        elif len(values) >= STARTUP:
            on_front = (values[:, None] == pareto_front(values)[None]).all(axis=2).any(axis=1)
            parents = rng.permutation(np.flatnonzero(on_front)).tolist()
        else:
            parents = []
        for parent in parents:
            near = untried(neighbours(self.space, known.choices[[parent]]), known.tried)
            if len(near):
                return row_of(near, int(rng.integers(len(near))))
        return row_of(random_feasible(self.space, None, 1, rng, known.tried))


def _climb(space: SearchSpace, known: Known, rank: Sequence[tuple[float, float]]) -> int:
    """Where the present climb stands, replayed from the trials: a position among them. Higher `rank` is better."""
    ids = row_ids(known.choices)
    at, near = 0, row_ids(neighbours(space, known.choices[[0]]))
    for trial in range(1, len(ids) + 1):
        while np.isin(near, ids[:trial]).all():  # all neighbours are tried: some of them perhaps in an earlier climb
            best = max(np.flatnonzero(np.isin(ids[:trial], near)).tolist(), key=lambda i: rank[i])
            if rank[best] <= rank[at]:
                break
            at, near = best, row_ids(neighbours(space, known.choices[[best]]))
        exhausted = bool(np.isin(near, ids[:trial]).all())
        if trial < len(ids) and (exhausted or rank[trial] > rank[at]):
            at, near = trial, row_ids(neighbours(space, known.choices[[trial]]))
    return at
