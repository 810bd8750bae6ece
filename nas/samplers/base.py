"""Common parts of all samplers: whole architectures instead of single parameters, and what a study knows of them."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from nas.errors import InfeasibleError
from predictors.one_thread import one_thread
from search_spaces import Architecture, Choices, SearchSpace

if TYPE_CHECKING:
    from optuna.study import Study

Feasible = Callable[[Choices], NDArray[np.bool_]]
"""(n, decisions) -> (n,): which candidates keep every limit that is known without an evaluation."""
RowIds = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class WithExamples:
    """A `Feasible` that comes with candidates to begin from, where random ones hardly ever keep the limits."""

    feasible: Feasible
    examples: Choices
    """(n, decisions), also none; those that `feasible` does not admit are ignored."""

    def __call__(self, choices: Choices) -> NDArray[np.bool_]:
        return self.feasible(choices)


MAX_DRAWS = 40
"""Rounds of random candidates before giving up on finding feasible ones."""
INTERRUPTED_ATTR = "interrupted"
"""User attribute of a failed trial that says nothing about its architecture (the process was killed): such a trial is
as if it had never been, so the search goes on as it would have without the interruption."""

_FINISHED = (TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED)
_ROUND = 1024


@dataclass(frozen=True, slots=True)
class Known:
    """The knowledge of a study.

    Attributes:
        complete: trials that ended with values, in the order in which they ended.
        choices: (complete, decisions), their canonical architectures.
        pending: trials that have an architecture and no end yet, by number.
        pending_choices: (pending, decisions), their canonical architectures.
        tried: identities of all architectures that were proposed: complete, failed, or running elsewhere.
        finished: how many trials ended in any way.
    """

    complete: tuple[FrozenTrial, ...]
    choices: Choices
    pending: tuple[FrozenTrial, ...]
    pending_choices: Choices
    tried: RowIds
    finished: int

    def first(self, count: int) -> "Known":
        """The knowledge when only the first `count` of the complete trials were known, and nothing was under way."""
        choices = self.choices[:count]
        return Known(self.complete[:count], choices, (), choices[:0], row_ids(choices), count)


class SpaceSampler(BaseSampler):
    """An Optuna sampler that proposes whole architectures of one space.

    The state is the study: a sampler made afresh on the same storage with the same seed proposes the same.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def propose(self, study: "Study", trial: FrozenTrial, known: Known) -> Choices:
        """The next architecture (decisions,)."""

    def rng(self, known: Known) -> np.random.Generator:
        """Random numbers that depend on the seed and on how far the study is, not on what this process did before."""
        return np.random.default_rng([self.seed, known.finished])

    def infer_relative_search_space(self, study: "Study", trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(distributions(self.space))

    def sample_relative(
        self, study: "Study", trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        with one_thread():
            row = self.propose(study, trial, knowledge(study, self.space, trial.number))
        return self.space.parameters(self.space.architecture(row))

    def sample_independent(
        self, study: "Study", trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Used only for parameters outside the space, which the sampler knows nothing about."""
        independent = optuna.samplers.RandomSampler(seed=self.seed + trial.number)
        return independent.sample_independent(study, trial, param_name, param_distribution)


def knowledge(study: "Study", space: SearchSpace, number: int) -> Known:
    """The knowledge of `study` when trial `number` is to be proposed."""
    trials = study.get_trials(deepcopy=False, states=(*_FINISHED, TrialState.RUNNING))
    kept = [
        t
        for t in sorted(trials, key=lambda t: t.number)
        if t.number != number and not t.user_attrs.get(INTERRUPTED_ATTR) and _is_whole(t, space)
    ]
    choices = choices_of(kept, space)
    complete = [i for i, t in enumerate(kept) if t.state == TrialState.COMPLETE]
    complete.sort(key=lambda i: (kept[i].datetime_complete or datetime.max, kept[i].number))
    pending = [i for i, t in enumerate(kept) if t.state == TrialState.RUNNING]
    finished = len(kept) - len(pending)
    return Known(
        tuple(kept[i] for i in complete),
        choices[complete],
        tuple(kept[i] for i in pending),
        choices[pending],
        row_ids(choices),
        finished,
    )


def distributions(space: SearchSpace) -> Mapping[str, CategoricalDistribution]:
    """The space as Optuna distributions, equal to what `space.suggest` asks a trial for."""
    return {
        d.name: CategoricalDistribution([d.options[i] for i in a])
        for d, a in zip(space.decisions, space.allowed, strict=True)
    }


def architecture_of(trial: FrozenTrial, space: SearchSpace) -> Architecture | None:
    """The architecture a trial proposed; None for a trial that ended before it chose one."""
    if not _is_whole(trial, space):
        return None
    return space.architecture(choices_of([trial], space)[0])


def choices_of(trials: Sequence[FrozenTrial], space: SearchSpace) -> Choices:
    """Canonical choices (trials, decisions) of trials that chose every decision."""
    columns = [[d.index(v) for v in _values(trials, d.name)] for d in space.decisions]
    return space.canonical(np.array(columns, dtype=np.int64).reshape(len(space.decisions), len(trials)).T)


def row_of(choices: Choices, at: int = 0) -> Choices:
    """One architecture (decisions,) of several."""
    row: Choices = choices[at]
    return row


def row_ids(choices: Choices) -> RowIds:
    """(n, decisions) -> (n,): equal rows share an id, different ones do not but for a chance of about n^2 / 2^64."""
    weights = np.random.default_rng(0).integers(0, 2**64, size=choices.shape[1], dtype=np.uint64, endpoint=False)
    ids: RowIds = (choices.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    return ids


def distinct(choices: Choices) -> Choices:
    """Each row once, in order of first occurrence."""
    _, first = np.unique(row_ids(choices), return_index=True)
    return choices[np.sort(first)]


def untried(choices: Choices, tried: RowIds) -> Choices:
    """The rows that were not tried yet."""
    return choices[~np.isin(row_ids(choices), tried)]


def only_feasible(choices: Choices, feasible: Feasible | None) -> Choices:
    """The rows that keep the known limits."""
    return choices if feasible is None or not len(choices) else choices[feasible(choices)]


def random_feasible(
    space: SearchSpace, feasible: Feasible | None, count: int, rng: np.random.Generator, tried: RowIds | None = None
) -> Choices:
    """`count` distinct random candidates that keep the limits, with moves from those found where hardly any does.

    Those in `tried` are left out as long as there are others. Fewer where no more are found; raises `InfeasibleError`
    where there is none at all.
    """
    found = np.zeros((0, len(space.decisions)), dtype=np.int64)
    if isinstance(feasible, WithExamples):
        found = distinct(only_feasible(feasible.examples, feasible))
    new = found
    for _ in range(MAX_DRAWS):
        batch = space.sample(_ROUND, rng)
        if len(found):
            batch = np.concatenate([batch, space.mutate(found, rng, 0.1)])
        found = distinct(np.concatenate([found, only_feasible(batch, feasible)]))
        new = found if tried is None else untried(found, tried)
        if len(new) >= count:
            return rng.permutation(new)[:count]
    if not len(found):
        raise InfeasibleError(
            f"none of {_ROUND * MAX_DRAWS:,} random networks keeps the limits",
            "loosen the limit or give a longer --budget",
        )
    return rng.permutation(new if len(new) else found)[:count]


def _is_whole(trial: FrozenTrial, space: SearchSpace) -> bool:
    return all(d.name in trial.params for d in space.decisions)


def _values(trials: Sequence[FrozenTrial], name: str) -> list[Any]:
    return [t.params[name] for t in trials]
