"""The candidates of one search: how they are proposed and evaluated, and those that were."""

import math
from collections.abc import Callable, Sequence

from optuna.samplers import BaseSampler

from nas.controller.engine import Engine
from nas.controller.evaluators import make_evaluator, trains
from nas.controller.ladder import ladder
from nas.controller.loop import SearchLoop
from nas.controller.prediction.filling import trainable
from nas.controller.preparation import SEARCH_STUDY, PreparedSearch
from nas.controller.promise import chance_to_lead, size_promises, worth_by_promise
from nas.controller.proxies import SCORING_SHARE, proxy_scores, within
from nas.controller.runs.run_folder import RunFolder
from nas.controller.runs.short_weights import ShortWeights
from nas.controller.trials import SHORT
from nas.controller.values import Evaluated
from nas.evaluation.estimators import EstimatorSetting
from nas.executors import Executor
from nas.executors.gpus import workers_here
from nas.samplers import Feasible, RandomFeasibleSampler, SamplerTask, WithExamples, Worth, make_sampler
from search_spaces import Architecture

PROXIES_FROM_S = 4.0
"""Seconds between two proposals, as planned, below which no zero-cost scores are asked: they take 0.1 to 1.7 s of
each network on two slow cores, a random candidate among eight is chosen by them, and workers wait meanwhile."""
PHASES = {"short_training": "short trainings", "estimates": "estimates"}
"""The stages in which candidates are evaluated, and what they are called."""


class Candidates:
    """Proposes and evaluates the candidates of one search, and knows those that were evaluated.

    `elapsed_s`: seconds of the budget that are spent; by what is left zero-cost scores are afforded or not.
    """

    def __init__(self, prepared: PreparedSearch, folder: RunFolder, engine: Engine, elapsed_s: float) -> None:
        self._prepared, self._folder, self._engine = prepared, folder, engine
        self._config, self._space, self._data = prepared.inputs.config, prepared.inputs.space, prepared.inputs.data
        self._recipes, self._target, self._scorer = prepared.recipes, prepared.inputs.target, prepared.scorer
        self._estimator = prepared.choice.name
        self.weights = ShortWeights(folder.short_weights)
        self.evaluator = make_evaluator(self._estimator, self._setting(), self._config.max_trials)
        # scores that are the estimates themselves teach a sampler nothing
        proposed_each_s = self._recipes.short_s / max(engine.full_trainings, self._workers)
        scored = self._estimator != "zero-cost" and proposed_each_s >= PROXIES_FROM_S
        scoring_s = SCORING_SHARE * (prepared.plan.deadlines.search_short_until_s - elapsed_s)
        scores = proxy_scores(self._space, self._data, self._config.seed)
        self._proxies = within(scores, scoring_s) if scored else None

    @property
    def phase(self) -> str:
        """The stage in which they are evaluated, a key of `PHASES`."""
        return "short_training" if trains(self._estimator) else "estimates"

    def loop(self, executor: Executor | None = None) -> SearchLoop:
        """The loop of proposals and evaluations; without `executor` these happen in this process."""
        return SearchLoop(
            space=self._space, data=self._data, scorer=self._scorer, short=self._recipes.short, proxies=self._proxies,
            storage=self._engine.storage, executor=executor, evaluator=self.evaluator, weights=self.weights,
            chance=self._chance(),
        )  # fmt: skip

    def evaluated(self) -> list[Evaluated]:
        """Everything that was evaluated so far."""
        loop = self.loop()
        return loop.evaluated(loop.study(SEARCH_STUDY, self.sampler()))

    def usable(self, evaluated: Sequence[Evaluated]) -> list[Evaluated]:
        """The evaluated candidates without those of another run that are predicted to miss the present limits."""
        if not self._folder.reused.exists() or not evaluated:
            return list(evaluated)
        kept = self._scorer.worst_ratio(self._space.choices([e.arch for e in evaluated])) <= 1.0
        measured = self._target.designs.archs if self._target.designs else ()
        return [e for e, keeps in zip(evaluated, kept, strict=True) if keeps or e.arch in measured]

    def sampler(self) -> BaseSampler:
        """The objective's: where not accuracy alone counts, samplers take turns on a ladder of latencies."""

        def make(feasible: Feasible) -> BaseSampler:
            known = WithExamples(feasible, self._prepared.examples)
            designs = trainable(self._target.designs, self._space, self._scorer.affordable)
            task = SamplerTask(
                space=self._space, feasible=known, proxies=self._proxies, seed=self._config.seed,
                designs=designs, worth=self._worth(),
            )  # fmt: skip
            return make_sampler(self._config.sampler, task)

        if self._config.objective == "accuracy":
            return make(self._scorer.feasible)
        return ladder(self._scorer, self._config.seed, make)

    def random_sampler(self) -> BaseSampler:
        """That of random search under the same limits."""
        feasible = WithExamples(self._scorer.feasible, self._prepared.examples)
        return RandomFeasibleSampler(self._space, feasible, seed=self._config.seed)

    def _worth(self) -> Worth | None:
        """Where designs fill a tight limit, candidates are compared by what a full training promises to make of them:
        by what short ones have, proposals ended at networks of a fifth of their work, which learn fast."""
        if self._target.designs is None or self._estimator != SHORT or not size_promises(self._space):
            return None
        count = len(self._target.model.deployments)
        return worth_by_promise(self._space, self._data.output_size, lambda c: self._recipes.epochs(c, count))

    def _chance(self) -> Callable[[Sequence[Evaluated], Architecture], bool] | None:
        """Under a limit that most of the space keeps, short trainings propose ever smaller networks, which learn fast.
        None of them becomes the finalist of a search whose clock would let a larger one learn more: its time is."""
        config, finite = self._config, math.isfinite(self._config.seconds)
        if self._worth() is not None or self._estimator != SHORT or not size_promises(self._space):
            return None
        if config.objective != "accuracy" or config.max_trials is not None or not finite:
            return None
        return chance_to_lead(self._space, self._data.output_size)

    @property
    def _workers(self) -> int:
        """Short trainings at once, as far as the settings tell: how many a cluster does is its own affair."""
        return workers_here(self._config.workers) if self._config.ray is None else self._config.workers or 1

    def _setting(self) -> EstimatorSetting:
        return EstimatorSetting(
            space=self._space, data=self._data, short=self._recipes.short,
            supernet=self._prepared.choice.supernet, checkpoint=self._folder.supernet,
            admissible=self._scorer.feasible, seed=self._config.seed,
        )  # fmt: skip
