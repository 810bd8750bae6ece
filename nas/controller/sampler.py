"""The default sampler: learn from what the study knows, evolve many candidates on it, propose the best one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from nas.errors import UserError
from predictors.accuracy import AccuracyPredictor
from search_spaces import Architecture, Choices, StagedSpace

if TYPE_CHECKING:
    from optuna.study import Study

MAX_DRAWS = 40
"""Rounds of random candidates before giving up on finding feasible ones."""
PROXIES_ATTR = "proxies"
"""Trial attribute with the zero-cost scores of its network."""

Feasible = Callable[[Choices], NDArray[np.bool_]]
"""(n, decisions) -> (n,): which candidates are predicted to keep every limit."""
ProxyScores = Callable[[Architecture], NDArray[np.float64]]
"""Zero-cost scores (k,) of one network, higher is better; NaN where one has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateSettings:
    """How hard the sampler thinks."""

    startup: int = 5
    """Trials before the learned predictor decides; well-known designs come first among them."""
    startup_pool: int = 8
    """Random candidates among which zero-cost scores choose during start-up."""
    population: int = 1024
    generations: int = 8
    shortlist: int = 6
    """Candidates whose zero-cost scores are computed before each proposal."""
    exploration: float = 0.5
    """Standard deviations added to the predicted accuracy: how much being unsure attracts."""


class SpaceSampler(BaseSampler):
    """An Optuna sampler that proposes whole architectures of one space, never single parameters.

    The state is the study: a sampler made afresh on the same storage with the same seed proposes the same.
    """

    def __init__(self, space: StagedSpace, seed: int) -> None:
        self.space = space
        self.seed = seed

    def propose(self, known: Sequence[FrozenTrial], rng: np.random.Generator) -> Architecture:
        """The next architecture, given all finished trials (failed ones too)."""
        raise NotImplementedError

    def infer_relative_search_space(self, study: "Study", trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(distributions(self.space))

    def sample_relative(
        self, study: "Study", trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        known = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED))
        rng = np.random.default_rng([self.seed, trial.number])
        return self.space.parameters(self.propose(known, rng))

    def sample_independent(
        self, study: "Study", trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Only for parameters outside the space, which the sampler knows nothing about."""
        independent = optuna.samplers.RandomSampler(seed=self.seed + trial.number)
        return independent.sample_independent(study, trial, param_name, param_distribution)


class SurrogateSampler(SpaceSampler):
    """Proposes feasible architectures that look most accurate.

    Well-known designs come first, then random ones that zero-cost scores prefer, then what a predictor fitted on all
    finished trials makes of them. Limits are hard: only candidates that `feasible` admits are proposed.
    """

    def __init__(
        self,
        space: StagedSpace,
        feasible: Feasible,
        proxies: ProxyScores | None = None,
        *,
        settings: SurrogateSettings | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(space, seed)
        self.feasible = feasible
        self.proxies = proxies
        self.settings = settings or SurrogateSettings()

    def propose(self, known: Sequence[FrozenTrial], rng: np.random.Generator) -> Architecture:
        tried = keys_of(known, self.space)
        complete = [t for t in known if t.state == TrialState.COMPLETE]
        for anchor in self._usable_anchors():
            if len(known) < self.settings.startup and anchor.key not in tried:
                return anchor
        if len(complete) < self.settings.startup:
            return self._best_by_proxies(
                untried(self.space, random_feasible(self.space, self.feasible, self.settings.startup_pool, rng), tried)
            )
        return self._best_by_prediction(complete, tried, rng)

    def _usable_anchors(self) -> list[Architecture]:
        """Each well-known design once, at the largest resolution at which it keeps the limits."""
        anchors = sorted(self.space.anchors, key=self.space.resolution, reverse=True)
        kept: dict[tuple[int, ...], Architecture] = {}
        for anchor in anchors:
            if anchor.choices[:-1] not in kept and self.feasible(self.space.choices([anchor]))[0]:
                kept[anchor.choices[:-1]] = anchor
        order = {a.choices[:-1]: i for i, a in enumerate(self.space.anchors)}
        return sorted(kept.values(), key=lambda a: order.get(a.choices[:-1], len(order)))

    def _best_by_proxies(self, pool: Choices) -> Architecture:
        """The highest mean rank over the zero-cost scores; the first of the pool where there are none."""
        if self.proxies is None:
            return self.space.architecture(pool[0])
        scores = np.stack([self.proxies(self.space.architecture(row)) for row in pool])
        ranks = np.nan_to_num(scores, nan=-np.inf).argsort(axis=0).argsort(axis=0).mean(axis=1)
        return self.space.architecture(pool[int(ranks.argmax())])

    def _best_by_prediction(
        self, complete: Sequence[FrozenTrial], tried: set[str], rng: np.random.Generator
    ) -> Architecture:
        archs = [architecture_of(t, self.space) for t in complete]
        choices = self.space.choices([a for a in archs if a is not None])
        accuracy = np.array([t.values[0] for t in complete], dtype=np.float64)
        extra = proxies_of(complete) if self.proxies is not None else None
        predictor = AccuracyPredictor(features=self.space.features, seed=self.seed)
        predictor.fit(choices, accuracy, extra)

        def score(candidates: Choices, scores: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
            prediction = predictor.predict(candidates, scores)
            return prediction.mean + self.settings.exploration * prediction.std

        population = self._evolve(choices[np.argsort(-accuracy)], score, rng)
        shortlist = untried(self.space, population, tried)[: self.settings.shortlist]
        if self.proxies is None:
            return self.space.architecture(shortlist[0])
        scores = np.stack([self.proxies(self.space.architecture(row)) for row in shortlist])
        return self.space.architecture(shortlist[int(score(shortlist, scores).argmax())])

    def _evolve(
        self, incumbents: Choices, score: Callable[[Choices], NDArray[np.float64]], rng: np.random.Generator
    ) -> Choices:
        """A population of feasible candidates, best first, grown from the best trials and random newcomers."""
        size = self.settings.population
        parents = incumbents[: max(4, len(incumbents) // 3)]
        near = self.space.mutate(parents[rng.integers(len(parents), size=size // 2)], rng, 0.08)
        population = self._only_feasible(np.concatenate([near, self.space.sample(size, rng)]))
        for _ in range(self.settings.generations):
            best = population[np.argsort(-score(population), kind="stable")[: max(8, size // 4)]]
            mothers, fathers = (best[rng.integers(len(best), size=size // 2)] for _ in range(2))
            children = np.concatenate(
                [self.space.crossover(mothers, fathers, rng), self.space.mutate(mothers, rng, 0.06)]
            )
            population = np.unique(np.concatenate([best, self._only_feasible(children)]), axis=0)
        return population[np.argsort(-score(population), kind="stable")]

    def _only_feasible(self, choices: Choices) -> Choices:
        kept = choices[self.feasible(choices)]
        return kept if len(kept) else choices


class RandomFeasibleSampler(SpaceSampler):
    """The baseline: random candidates under the same limits, nothing learned."""

    def __init__(self, space: StagedSpace, feasible: Feasible, *, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.feasible = feasible

    def propose(self, known: Sequence[FrozenTrial], rng: np.random.Generator) -> Architecture:
        pool = random_feasible(self.space, self.feasible, 8, rng)
        return self.space.architecture(untried(self.space, pool, keys_of(known, self.space))[0])


def random_feasible(space: StagedSpace, feasible: Feasible, count: int, rng: np.random.Generator) -> Choices:
    """`count` distinct random candidates that keep the limits, with moves from those found where hardly any does.

    Fewer where no more are found; raises `UserError` where there is none at all.
    """
    found = np.zeros((0, len(space.decisions)), dtype=np.int64)
    for _ in range(MAX_DRAWS):
        batch = space.sample(1024, rng)
        if len(found):
            batch = np.concatenate([batch, space.mutate(found, rng, 0.1)])
        found = np.unique(np.concatenate([found, batch[feasible(batch)]]), axis=0)
        if len(found) >= count:
            return rng.permutation(found)[:count]
    if not len(found):
        raise UserError(
            f"none of {1024 * MAX_DRAWS:,} random networks keeps the limits",
            "loosen the limit or give a longer --budget",
        )
    return rng.permutation(found)


def untried(space: StagedSpace, choices: Choices, tried: set[str]) -> Choices:
    """The candidates that were not tried yet; all of them where every one was."""
    new = [row for row in choices if space.architecture(row).key not in tried]
    return np.stack(new) if new else choices


def keys_of(trials: Sequence[FrozenTrial], space: StagedSpace) -> set[str]:
    """Keys of all architectures that trials proposed."""
    return {arch.key for arch in (architecture_of(t, space) for t in trials) if arch is not None}


def distributions(space: StagedSpace) -> Mapping[str, CategoricalDistribution]:
    """The space as Optuna distributions, equal to what `space.suggest` asks a trial for."""
    return {
        d.name: CategoricalDistribution([d.options[i] for i in a])
        for d, a in zip(space.decisions, space.allowed, strict=True)
    }


def architecture_of(trial: FrozenTrial, space: StagedSpace) -> Architecture | None:
    """The architecture a trial proposed; None for a trial that ended before it chose one."""
    if any(d.name not in trial.params for d in space.decisions):
        return None
    return space.architecture([d.index(trial.params[d.name]) for d in space.decisions])


def proxies_of(trials: Sequence[FrozenTrial]) -> NDArray[np.float64] | None:
    """Zero-cost scores (n, k) that trials carry, NaN where missing; None where no trial has any."""
    rows = [t.user_attrs.get(PROXIES_ATTR) for t in trials]
    width = max((len(r) for r in rows if r), default=0)
    if not width:
        return None
    return np.array(
        [[np.nan if v is None else v for v in r] if r else [np.nan] * width for r in rows], dtype=np.float64
    )
