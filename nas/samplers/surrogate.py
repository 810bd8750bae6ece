"""The default sampler: learn from what the study knows, evolve many candidates on it, propose the best ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from nas.samplers.acquisition import pareto_front
from nas.samplers.base import (
    Feasible,
    Known,
    SpaceSampler,
    only_feasible,
    random_feasible,
    row_ids,
    row_of,
    untried,
)
from nas.samplers.goal import Goal, Limit
from nas.samplers.learnt import Features, Learnt, LearntLatency, Worth, learn, proxies_of
from nas.samplers.population import Distant, Evolution
from predictors.base import LatencyPredictor
from search_spaces import Architecture, Choices, SearchSpace

if TYPE_CHECKING:
    from optuna.study import Study

Floats = NDArray[np.float64]
ProxyScores = Callable[[Architecture], Floats]
"""Zero-cost scores (k,) of one network, higher is better; NaN where one has no value."""

_TYPICAL = 512  # random networks that stand for the space
_USEFUL = 0.75  # networks less accurate than this quantile of the first trials do not count for a front
_FASTER = 0.1  # a front is looked for so much faster than its fastest known network, as a part of its span
_GOLDEN = 0.6180339887  # multiples of the golden ratio's fraction fill an interval evenly
_FEWEST_INCUMBENTS = 4
_MIN_ROWS = 4  # what the accuracy predictor needs
_APART = 0.15
"""Least part of the decisions in which a proposal differs from each network that is being evaluated: so many at once
are to tell of different places, and what lies beside one of them is worth asking for when its value is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateSettings:
    """Amount of work that the sampler puts into a proposal."""

    startup: int = 10
    """Trials before the learned predictors decide; well-known designs come first among them."""
    startup_with_proxies: int = 5
    """The same where zero-cost scores say more than nothing about the first candidates."""
    startup_pool: int = 8
    """Random candidates among which zero-cost scores choose during start-up."""
    population: int = 1024
    generations: int = 8
    beside: float = 0.25
    """The same population for a proposal beside others that are being evaluated, as a part of it: there is one for each
    of them, and it begins from the candidates of the last fit."""
    shortlist: int = 6
    """Candidates whose zero-cost scores are computed before each proposal."""
    batch: float = 0.05
    """Proposals made from one fit, as a part of the trials it learned from; at least one."""
    fast: bool = False
    """Leave out the predictor's slower ingredients."""


class SurrogateSampler(SpaceSampler):
    """Proposes architectures whose evaluation promises most.

    Well-known designs come first, then random ones that zero-cost scores prefer, then what predictors fitted on the
    finished trials make of them. With one objective (accuracy) that is the expected improvement on the best network
    seen that keeps the limits, weighed with the chance to keep those that have to be learnt. With two (accuracy,
    latency) it is the same under one latency limit after the other, spread over the span of the front.

    Where others are being evaluated, the predictors take their own word for those (`Goal.believing`), and a proposal
    differs from each of them in some decisions. Proposed one by one, networks are what they would be without that.

    Limits known beforehand are hard: only candidates that `feasible` admits are proposed. Others are constraints of the
    trials (`Trial.set_constraint`); those that some trial broke are predicted from the features, the latency by its own
    predictor where there is one.
    """

    def __init__(
        self,
        space: SearchSpace,
        feasible: Feasible | None = None,
        proxies: ProxyScores | None = None,
        *,
        latency: LearntLatency | None = None,
        features: Features | None = None,
        designs: Sequence[Architecture] | None = None,
        worth: Worth | None = None,
        settings: SurrogateSettings | None = None,
        seed: int = 0,
    ) -> None:
        """Makes a sampler for a study over `space`.

        Args:
            space: what is searched.
            feasible: which candidates keep the limits that are known without an evaluation; None: all.
            proxies: zero-cost scores of a network, where trials carry them as the attribute `PROXIES_ATTR`.
            latency: how latencies are predicted; None: like any other constraint or second objective.
            features: views for the accuracy predictor; None: the space's own.
            designs: to propose first, whatever `feasible` says of them; None: the space's own, as far as they are.
            worth: what the values of finished trials are worth; None: what they say.
            settings: how hard the sampler thinks.
            seed: of everything random; the same seed on the same trials proposes the same.
        """
        super().__init__(space, seed)
        self.feasible = feasible
        self.proxies = proxies
        self.latency = latency
        self.features: Features = space.features if features is None else features
        self.designs = designs
        self.worth = worth
        self.settings = settings or SurrogateSettings()
        self._plan: _Plan | None = None  # saves time only: it follows from the study

    def propose(self, study: "Study", trial: FrozenTrial, known: Known) -> Choices:
        rng = self.rng(known)
        if known.finished < self._startup:
            anchors = untried(self._usable_anchors(), known.tried)
            if len(anchors):
                return row_of(anchors)
        if len(known.complete) < max(self._startup, _MIN_ROWS):
            pool = random_feasible(self.space, self.feasible, self.settings.startup_pool, rng, known.tried)
            return self._best_by_proxies(pool)
        plan = self._planned(study, known)
        left = untried(plan.ranking, known.tried)
        if len(known.pending):
            left = self._beside(plan, left, known)
        return row_of(left if len(left) else random_feasible(self.space, self.feasible, 1, rng, known.tried))

    @property
    def _startup(self) -> int:
        return self.settings.startup if self.proxies is None else self.settings.startup_with_proxies

    # -- start-up ----------------------------------------------------------------------------------

    def _usable_anchors(self) -> Choices:
        """Those given; else each well-known design once, with the largest input with which it keeps the limits."""
        if self.designs is not None:
            return self.space.choices(self.designs)
        fitting = (
            [a for a in design if len(only_feasible(self.space.choices([a]), self.feasible))]
            for design in self.space.designs
        )
        return self.space.choices([found[0] for found in fitting if found])

    def _best_by_proxies(self, pool: Choices) -> Choices:
        """The highest mean rank over the zero-cost scores; the first of the pool where there are none."""
        scores = None if self.proxies is None else self._proxies_of(pool)
        if scores is None or not scores.shape[1]:
            return row_of(pool)
        ranks = np.nan_to_num(scores, nan=-np.inf).argsort(axis=0).argsort(axis=0).mean(axis=1)
        return row_of(pool, int(ranks.argmax()))

    def _proxies_of(self, pool: Choices) -> Floats:
        assert self.proxies is not None
        return np.stack([self.proxies(self.space.architecture(row)) for row in pool])

    # -- afterwards --------------------------------------------------------------------------------

    def _planned(self, study: "Study", known: Known) -> "_Plan":
        """Candidates in the order in which to propose them, from a fit on as many trials as a batch ago."""
        fitted, batch = self._last_fit(len(known.complete))
        basis = known.first(fitted)
        key = tuple((t.number, tuple(t.values), tuple(t.params.values())) for t in basis.complete)
        if self._plan is None or self._plan.key != key:
            self._plan = self._make_plan(study, basis, batch, key)
        return self._plan

    def _beside(self, plan: "_Plan", left: Choices, known: Known) -> Choices:
        """Untried candidates, best first, that are no neighbours of those under way; `left` where there are none.

        The more are under way, the more is taken for known around them; in a front the next limits have their turns.
        """
        rng = np.random.default_rng([self.seed, known.finished, len(known.pending)])
        scores = proxies_of(known.pending) if self.proxies is not None else None
        goal = plan.goal(len(known.complete) + len(known.pending)).believing(known.pending_choices, scores)
        distant = Distant(known.pending_choices, max(1, int(_APART * len(self.space.decisions))), self.feasible)
        size = max(1, int(self.settings.beside * self.settings.population))
        evolution = Evolution(self.space, distant, known.tried, size, self.settings.generations)
        parents = np.concatenate([only_feasible(left, distant)[:size], plan.incumbents])
        found = evolution.grow(parents, goal, rng).choices
        return self._with_proxies(goal, found, self.settings.shortlist) if len(found) else left

    def _last_fit(self, complete: int) -> tuple[int, int]:
        """Number of trials that the present fit learned from, and number of proposals that are made from it."""
        fitted = max(self._startup, _MIN_ROWS)
        while True:
            batch = max(1, int(fitted * self.settings.batch))
            if fitted + batch > complete:
                return fitted, batch
            fitted += batch

    def _make_plan(self, study: "Study", known: Known, batch: int, key: object) -> "_Plan":
        rng = np.random.default_rng([self.seed, len(known.complete), 1])
        learnt = learn(
            study,
            known,
            self.features,
            self.latency,
            worth=self.worth,
            proxies=self.proxies is not None,
            fast=self.settings.fast,
            seed=self.seed,
        )
        first = len(known.complete)
        if learnt.latency is not None and learnt.latencies_ms is not None:
            goal_at, incumbents = self._front(learnt, learnt.latency, learnt.latencies_ms, known)
            goals = [goal_at(turn) for turn in range(first, first + batch)]
        else:
            goal, incumbents = self._best_within_limits(learnt, known)
            goals = [goal]

            def goal_at(turn: int) -> Goal:
                return goal

        leaders = known.choices[:0]
        for goal in goals:
            seen = np.concatenate([known.tried, row_ids(leaders)])
            evolution = Evolution(self.space, self.feasible, seen, self.settings.population, self.settings.generations)
            ranked = evolution.grow(incumbents, goal, rng).choices
            ranking = self._with_proxies(goal, ranked, self.settings.shortlist * batch // len(goals))
            leaders = np.concatenate([leaders, ranking[:1]])
        return _Plan(key, np.concatenate([leaders, ranking[1:]]), goal_at, incumbents)

    def _with_proxies(self, goal: Goal, ranked: Choices, count: int) -> Choices:
        """The same candidates with the first `count` in the order that their zero-cost scores suggest."""
        if self.proxies is None or not len(ranked):
            return ranked
        short = ranked[:count]
        order = np.argsort(-goal(short, self._proxies_of(short)), kind="stable")
        return np.concatenate([short[order], ranked[len(short) :]])

    def _best_within_limits(self, learnt: Learnt, known: Known) -> tuple[Goal, Choices]:
        """Goal for one objective: to surpass the best network that keeps the limits."""
        scores, kept = learnt.scores, learnt.kept
        best = float(scores[kept].max()) if kept.any() else float(scores.min())
        order = np.lexsort((-scores, ~kept))
        incumbents = known.choices[order[: max(_FEWEST_INCUMBENTS, int(kept.sum()) // 3)]]
        return Goal(learnt.accuracy, best, learnt.limits), incumbents

    def _front(
        self, learnt: Learnt, latency: LatencyPredictor, latencies_ms: Floats, known: Known
    ) -> tuple[Callable[[int], Goal], Choices]:
        """Goals for two objectives: to surpass the best network within one latency limit after the other, by turn.

        A front is searched as limits in turn (the constraint method: Haimes et al. 1971; random scalarisations
        of expected improvement: Knowles 2006). The limits are a golden-ratio sequence of log latencies, which covers
        the span evenly however many there are.
        """
        # what counts must not depend on what the model liked: the first trials and the latencies predicted of random
        # networks stand for the space
        typical = latency.predict(self.space.sample(_TYPICAL, np.random.default_rng(self.seed)))
        slowest = np.log(max(float(latencies_ms.max()), float(typical.mean.max())))
        useful = float(np.quantile(learnt.scores[: self._startup], _USEFUL))
        fastest = np.log(float(latencies_ms[learnt.scores >= useful].min()))
        fastest -= _FASTER * (slowest - fastest)
        start = np.random.default_rng(self.seed).random()

        def goal_at(turn: int) -> Goal:
            limit_ms = float(np.exp(fastest + (start + _GOLDEN * turn) % 1.0 * (slowest - fastest)))
            best = float(learnt.scores[learnt.kept & (latencies_ms <= limit_ms)].max(initial=useful))
            return Goal(learnt.accuracy, best, (*learnt.limits, Limit(latency, limit_ms)))

        points = np.column_stack([learnt.scores, -np.log(latencies_ms)])
        considered = points[learnt.kept] if learnt.kept.any() else points
        on_front = (points[:, None] == pareto_front(considered)[None]).all(axis=2).any(axis=1)
        return goal_at, known.choices[on_front]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Proposals made from one fit.

    Attributes:
        key: the trials it follows from.
        ranking: (n, decisions), in the order in which to propose them one by one.
        goal: of a proposal by its turn, the number of trials before it that have or will have a value.
        incumbents: (k, decisions), the best networks so far.
    """

    key: object
    ranking: Choices
    goal: Callable[[int], Goal]
    incumbents: Choices
