"""The loop of a search: propose, evaluate, tell Optuna; also that of its random baseline."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from nas.controller.evaluators import Evaluator, all_are_trained
from nas.controller.planning.budget import Budget
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.promise import most_promising
from nas.controller.runs.run_folder import network_name
from nas.controller.runs.short_weights import KEPT, ShortWeights
from nas.controller.runs.storage import StudyStorage
from nas.controller.trials import (
    REASON_ATTR,
    SHORT,
    Proposal,
    TrialResult,
    finished,
    known_result,
    leave_out,
    left_behind,
    left_out_last,
    propose,
    result_of,
    result_of_estimate,
    result_of_training,
    tell,
)
from nas.controller.values import Evaluated, Failed
from nas.errors import UserError
from nas.evaluation.estimators import ESTIMATORS
from nas.evaluation.short_training import ShortTraining
from nas.executors import Evaluation, Executor, Failure, Outcome
from nas.networks.description import NetworkDescription
from nas.progress import Stage
from nas.samplers import INTERRUPTED_ATTR, PROXIES_ATTR, ProxyScores, architecture_of
from nas.tasks import TaskData
from nas.text import worth
from search_spaces import Architecture, SearchSpace

VALIDATED_ONCE = 1.1
"""Time of a full training by that of its steps, for its one validation and the start."""
NO_CHANCE, MAX_CHANCELESS_IN_A_ROW = "too small to become the finalist", 3
"""Reason why a proposal is not trained, and how many such proposals end the loop: the time is the finalist's then."""
MAX_FAILURES_IN_A_ROW = 10
MAX_REPEATS_IN_A_ROW = 10
"""Proposals of networks that are evaluated already, before the loop ends: there is nothing new under the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLoop:
    """Proposes and evaluates candidates, with the same data, recipe, limits, estimator and executor in every study."""

    space: SearchSpace
    data: TaskData
    scorer: CandidateScorer
    short: Callable[[Architecture], ShortTraining]
    """The short training that a candidate gets."""
    proxies: ProxyScores | None
    storage: StudyStorage
    executor: Executor | None
    """Trains candidates; None where `evaluator` never asks for that."""
    evaluator: Evaluator = all_are_trained
    weights: ShortWeights | None = None
    """Folder for the weights of the best candidates; None: they are not kept."""
    chance: Callable[[Sequence[Evaluated], Architecture], bool] | None = None
    """Whether a network may be of use beside those that were evaluated; None: all may."""

    def study(self, name: str, sampler: BaseSampler) -> optuna.Study:
        """The study `name` in the run's storage; one that exists is continued."""
        return self.storage.study(name, sampler, {"space": self.space.name, "data": self.data.name})

    def run(
        self, study: optuna.Study, budget: Budget, until_s: float, bar: Stage, *, at_most: int | None = None
    ) -> list[Evaluated]:
        """Evaluate proposals until `budget.elapsed_s` reaches `until_s`, or `at_most` trials are done.

        As many at once as the executor can run. A trial is begun only if a usual one would end in time. Trials that an
        earlier process left behind come first. Raises `UserError` where ten candidates in a row fail.
        """
        bar.advance(len(finished(study)))
        try:
            with self.storage.reachable():
                _Round(self, study, budget, until_s, bar, at_most).run()
        finally:
            if self.executor is not None:
                self.executor.abandon()  # where we were interrupted; its trials are continued later
        return self.evaluated(study)

    def evaluated(self, study: optuna.Study) -> list[Evaluated]:
        """All finished evaluations, in order of their trials; after a restart the earlier ones too."""
        found = []
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            arch = architecture_of(trial, self.space)
            if arch is not None:
                result, images = result_of(trial), trial.user_attrs.get("images")
                per_image = None
                if result.estimator == SHORT and result.image_s is not None:
                    per_image = VALIDATED_ONCE * result.image_s
                elif result.estimator == SHORT and images:
                    per_image = result.seconds / images
                found.append(
                    Evaluated(
                        arch, trial.number, result.value, result.seconds, per_image, result.interval, result.estimator
                    )
                )
        return found

    def failed(self, study: optuna.Study) -> list[Failed]:
        """Candidates that failed, with the reason recorded."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        known = [t for t in trials if not t.user_attrs.get(INTERRUPTED_ATTR)]
        found = [(architecture_of(trial, self.space), trial) for trial in known]
        return [Failed(arch, t.number, t.user_attrs.get(REASON_ATTR, "interrupted")) for arch, t in found if arch]

    def remarks(self, study: optuna.Study) -> list[str]:
        """What readers of the result should know of how its candidates were chosen."""
        if self.chance is None or left_out_last(study, NO_CHANCE) < MAX_CHANCELESS_IN_A_ROW:
            return []
        return ["short trainings ended early: their proposals are too small to become the finalist, which has the time"]

    def describe(self, trial: Trial, arch: Architecture) -> None:
        """Write into the trial what is known of its network before it is evaluated."""
        latency = self.scorer.describe(arch)
        trial.set_user_attr("key", arch.key)
        trial.set_user_attr("deployment", latency.deployment.name)
        trial.set_user_attr("predicted_latency_ms", latency.mean_ms)
        trial.set_user_attr("predicted_std_ms", latency.std_ms)
        for name, excess in self.scorer.excesses(arch).items():
            if name not in trial.constraints:  # a trial that was left behind has them
                trial.set_constraint(name, excess)
        if self.proxies is not None:
            trial.set_user_attr(PROXIES_ATTR, [None if math.isnan(v) else float(v) for v in self.proxies(arch)])

    def task(self, study: optuna.Study, trial: Trial, arch: Architecture) -> Evaluation:
        """The short training of a trial's network; says in the trial how many images it will see."""
        short = self.short(arch)
        trial.set_user_attr("images", (short.train_images or len(self.data.train)) * short.recipe.epochs)
        return Evaluation(
            study=study.study_name.replace("/", "-"),
            trial=trial.number,
            description=NetworkDescription.of_architecture(self.space, arch, self.data.output_size),
            data=self.data.name,
            short=short,
        )


class _Round:
    """One call of `SearchLoop.run`: what is under way, and what it has seen."""

    def __init__(
        self, loop: SearchLoop, study: optuna.Study, budget: Budget, until_s: float, bar: Stage, at_most: int | None
    ) -> None:
        self.loop = loop
        self.study = study
        self.budget = budget
        self.until_s = until_s
        self.bar = bar
        self.at_most = at_most
        self.under_way: dict[int, tuple[Proposal, float]] = {}
        self.durations: list[float] = []
        self.failures = 0
        self.repeats = 0
        self.left_behind = deque(left_behind(study, loop.space, loop.storage))

    def run(self) -> None:
        while True:
            while len(self.under_way) < self._capacity and self._one_more():
                began = self.budget.elapsed_s
                proposal = (
                    self.left_behind.popleft()
                    if self.left_behind
                    else propose(self.study, self.loop.space, self.loop.storage)
                )
                self._begin(proposal, began)
            if not self.under_way:
                return
            assert self.loop.executor is not None
            for done in self.loop.executor.wait():
                proposal, began = self.under_way.pop(done.task.trial)
                self._end_training(proposal, done.result, began)
                self.loop.executor.journal.forget(done.task)

    @property
    def _capacity(self) -> int:
        return 1 if self.loop.executor is None else self.loop.executor.capacity

    def _one_more(self) -> bool:
        """True if another trial may begin now."""
        count = len(finished(self.study)) + len(self.under_way)
        if (self.at_most is not None and count >= self.at_most) or self.repeats >= MAX_REPEATS_IN_A_ROW:
            return False
        if self.loop.chance is not None and left_out_last(self.study, NO_CHANCE) >= MAX_CHANCELESS_IN_A_ROW:
            return False
        usual = float(np.median(self.durations)) if self.durations else 0.0
        in_time = self.budget.elapsed_s + usual <= self.until_s
        return in_time or not (self.under_way or self.loop.evaluated(self.study))

    def _begin(self, proposal: Proposal, began: float) -> None:
        arch = proposal.arch
        self.loop.describe(proposal.trial, arch)
        if self.loop.chance is not None and not self.loop.chance(self.loop.evaluated(self.study), arch):
            leave_out(self.study, proposal, NO_CHANCE)
            self.bar.advance(1)
            return
        repeated = known_result(self.study, arch)
        self.repeats = self.repeats + 1 if repeated else 0
        untrained = None if repeated else self.loop.evaluator(self.study)
        if repeated is not None:
            self._end(proposal, repeated, began)
        elif untrained is not None:
            name, estimator = untrained
            self._end(proposal, result_of_estimate(name, estimator.estimate([arch])[0]), began)
        else:
            self._train(proposal, began)

    def _train(self, proposal: Proposal, began: float) -> None:
        """Submit the short training, unless the journal knows how it ended."""
        executor = self.loop.executor
        assert executor is not None
        task = self.loop.task(self.study, proposal.trial, proposal.arch)
        known = executor.journal.find(task)
        if known is not None:
            self._end_training(proposal, known, began)
            executor.journal.forget(task)
            return
        self.under_way[proposal.trial.number] = (proposal, began)
        executor.submit(task)

    def _end_training(self, proposal: Proposal, result: Outcome | Failure, began: float) -> None:
        if isinstance(result, Failure):
            self._end(proposal, result, began)
            return
        kept, study = self.loop.weights, self.study.study_name
        if kept is not None and result.weights is not None:
            kept.keep(study, network_name(proposal.arch.key), result.weights)
        self._end(proposal, result_of_training(result, self.loop.short(proposal.arch), self.loop.data), began)
        if kept is not None:
            found = self.loop.evaluated(self.study)
            best = most_promising(found, self.loop.space, self.loop.data.output_size)[:KEPT]
            kept.forget_others(study, [network_name(e.arch.key) for e in best])

    def _end(self, proposal: Proposal, result: TrialResult | Failure, began: float) -> None:
        tell(self.study, proposal, result)
        self.durations.append(self.budget.elapsed_s - began)
        self.failures = self.failures + 1 if isinstance(result, Failure) else 0
        if isinstance(result, Failure) and self.failures == MAX_FAILURES_IN_A_ROW:
            raise UserError(
                f"{self.failures} candidates in a row failed, the last one with: {result.reason}",
                f"see the trials in {self.loop.storage.where}; a lower --resolution often helps",
            )
        best = max(self.loop.evaluated(self.study), key=lambda e: e.value, default=None)
        self.bar.advance(1, note=None if best is None else f"best {worth(best.value, ESTIMATORS[best.estimator].unit)}")
