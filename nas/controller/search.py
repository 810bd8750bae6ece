"""One search from inputs to evidence. Each step is a function of its own; this file is their order."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna

from nas.controller.baselines import Baseline, ZooRound, names_not_reached
from nas.controller.candidates import PHASES, Candidates
from nas.controller.config import SearchConfig
from nas.controller.engine import Engine, device_of, engine_of
from nas.controller.evaluators import SingleEstimator, most_candidates, prepared_s, trains
from nas.controller.finalists import FinalRound, deliver, not_reached
from nas.controller.inputs import load_inputs, require_data_of
from nas.controller.loop import SearchLoop
from nas.controller.objective import winners
from nas.controller.planning.budget import NOTHING, Beforehand, BookedStage, Budget, Interrupts
from nas.controller.planning.estimator_choice import planned_phase_s
from nas.controller.planning.plan import (
    ANYTIME_S,
    IN_TIME,
    REPORT_S,
    STRETCH,
    FinalPlan,
    estimate,
    fewer_threads,
    room_for_baseline,
)
from nas.controller.planning.plan_record import read_account, read_final_plan, write_final_plan
from nas.controller.planning.training_times import doubt_throughput, plan_last_round
from nas.controller.prediction.target_record import write_target
from nas.controller.preparation import RANDOM_STUDY, SEARCH_STUDY, PreparedSearch, prepare_search, unused_weights
from nas.controller.results.evidence import write_evidence
from nas.controller.results.outcome import Outcome
from nas.controller.runs.run_folder import RunFolder, check_folder, opened
from nas.controller.trials import SHORT
from nas.controller.undelivered import is_worth_it, limits_missed, not_worth_it
from nas.controller.values import Evaluated, Failed, Finalist, RandomBaseline
from nas.deployment import Deployment
from nas.evaluation.estimators import SUPERNET_SHARE
from nas.evaluation.supernet.config import LOG_STEPS
from nas.files.writing import write_json
from nas.limits import Violation
from nas.measure.host import keep_to_usable_threads
from nas.measure.site import undisturbed
from nas.progress import Progress, SilentProgress, Stage
from nas.tasks import task_of
from nas.tasks.floor import Floor
from nas.tasks.same_data import record_splits
from nas.text import duration, percent
from nas.training.recipe import Recipe
from predictors.one_thread import one_thread

CHECKING_SHARE = 0.1
"""Of the last round's time, for finding the candidate that it is planned by."""
SPARE_SHARE = 0.1
"""Candidates are evaluated further where the last round would leave over so much of the time that they have had."""
REPEAT_SHARE = 0.25
"""Share of the rest of the budget that one measurement may take for repeating disturbed sessions."""
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a finished search."""

    document: dict[str, Any]
    """The result as in `result.json`."""
    run_dir: Path
    exit_code: int
    """0, or 130 where it was interrupted and has finished early."""


def run_search(
    config: SearchConfig, progress: Progress | None = None, beforehand: Beforehand = NOTHING
) -> SearchResult:
    """Search as `config` says; a run folder that holds a finished run of it is only read.

    `beforehand` counts against its budget.

    Raises `UserError` for wrong input before anything is written, `InfeasibleError` where a limit is out of reach,
    `LimitMissedError` where no finalist kept them, `KeyboardInterrupt` where it was interrupted with nothing to show.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # progress is told by `progress`
    progress = progress or SilentProgress()
    folder = check_folder(config)
    finished = finished_result(folder)
    if finished is not None:
        require_data_of(config, folder.path, progress)
        progress.note(f"{folder.path} holds this run's result already")
        return finished
    keep_to_usable_threads()
    spent = read_account(folder) or beforehand.seconds
    budget = Budget(config.seconds, spent=spent, price_per_hour=config.price_per_hour)
    with device_of(config) as device:
        inputs = load_inputs(config, budget, progress, folder.target, device)
        with opened(config, folder):
            record_splits(folder.path, inputs.data)
            write_target(folder.target, inputs.target, inputs.scorer.files)
            interrupts = Interrupts()
            with interrupts.handled(), engine_of(config, folder, inputs.data, budget.seconds, progress.note) as engine:
                with budget.stage("prepare"):
                    prepared = prepare_search(inputs, folder, budget, engine)
                return Search(prepared, folder, budget, progress, interrupts, engine).run(beforehand.notes)


def finished_result(folder: RunFolder) -> SearchResult | None:
    """The result in a run's folder, unless an interrupt made it an early one."""
    if not folder.result.exists():
        return None
    document = json.loads(folder.result.read_text())
    return None if document.get("interrupted") else SearchResult(document, folder.path, 0)


class Search:
    """The steps of one search after its inputs were found good, in the order of `run`."""

    def __init__(
        self,
        prepared: PreparedSearch,
        folder: RunFolder,
        budget: Budget,
        progress: Progress,
        interrupts: Interrupts,
        engine: Engine,
    ) -> None:
        self.prepared, self.folder, self.budget, self.engine = prepared, folder, budget, engine
        self.progress, self.interrupts = progress, interrupts
        self.inputs, self.plan, self.recipes = prepared.inputs, prepared.plan, prepared.recipes
        self.config, self.space, self.data = self.inputs.config, self.inputs.space, self.inputs.data
        self.target, self.scorer = self.inputs.target, prepared.scorer
        self.examples, self.choice = prepared.examples, prepared.choice
        site = self.target.site
        self.site = undisturbed(site, engine.quiet, self._repeat_s, self.config.limits.least_calls) if site else None
        self.notes = list(prepared.notes)
        self.failed: list[Failed] = []
        self.promising: dict[tuple[str, tuple[Deployment, ...]], bool] = {}
        self.missed: list[Violation] = []
        self.candidates = Candidates(prepared, folder, engine, budget.elapsed_s)

    def run(self, notes: Sequence[str] = ()) -> SearchResult:
        """All steps in their order. `notes` of what was done before join those of the result."""
        self.notes += notes or unused_weights(self.config)
        expected = self._estimate()
        loop = self.candidates.loop(self.engine.executor if trains(self.choice.name) else None)
        evaluated, final = self._search(loop)
        if not evaluated:
            raise KeyboardInterrupt  # so early that there is nothing to show
        with self.budget.stage("final_training"):
            finalists = self._finals(final, evaluated, "finalists", self.plan.deadlines.search_until_s)
            best = self.best(finalists)
            if not best and self.interrupts.asked:
                finalists += self._anytime(final, evaluated)
                best = self.best(finalists)
        full = [(f.evaluated.arch, f.trained) for f in finalists]
        remark = doubt_throughput(self.recipes, evaluated, full, final.recipe.epochs)
        self.notes += [remark] if remark else []
        self.notes += not_reached(finalists)
        if not best and any(f.within_limit for f in finalists):
            raise not_worth_it(finalists, self.floors, self.data)
        if not best:
            raise limits_missed(finalists, self.config.limits, self.folder.path, self.missed)
        random_baseline, zoo = self._baselines(loop, final, len(evaluated), best[0])
        return self.conclude(final.recipe, evaluated, finalists, best, random_baseline, zoo, expected)

    def best(self, finalists: Sequence[Finalist]) -> list[Finalist]:
        """The finalists to deliver, best first: they keep every limit and are worth more than the task's floors.

        An interrupt is answered by the best there is, whatever it is worth.
        """
        worth = [f for f in finalists if self.interrupts.asked or is_worth_it(f, self.floors, self.data)]
        return winners(self.config.objective, worth, self.config.winners)

    @cached_property
    def floors(self) -> tuple[Floor, ...]:
        """Accuracies that these data allow without a network."""
        with self.budget.stage("floors"), one_thread():
            return task_of(self.data).floors(self.data, self.config.seed)

    def conclude(
        self,
        recipe: Recipe,
        evaluated: Sequence[Evaluated],
        finalists: Sequence[Finalist],
        best: Sequence[Finalist],
        random_baseline: RandomBaseline | None = None,
        zoo: Sequence[Baseline] = (),
        expected: Mapping[str, float] | None = None,
        notes: Sequence[str] = (),
    ) -> SearchResult:
        """Deliver the `best` and write the evidence; `notes` join those of the search."""
        self.notes += [*notes, *self.engine.remarks]
        best = [deliver(w, self.folder.winner(rank)) for rank, w in enumerate(best, start=1)]
        self.folder.forget_winners(after=len(best))
        self.notes += [
            f"#{rank} keeps the weights of its short training: in the time that was left the full one reached less"
            for rank, w in enumerate(best, start=1) if w.trained.by_short_training
        ]  # fmt: skip
        if self.floors:
            told = ", ".join(f"{f.name} {percent(f.accuracy)}" for f in self.floors)
            self.notes.append(f"without a network, of the validation examples: {told}")
        if random_baseline is not None:
            delivered = deliver(random_baseline.finalist, self.folder.baseline("random"))
            random_baseline = replace(random_baseline, finalist=delivered)
        outcome = Outcome(
            inputs=self.inputs, scorer=self.scorer, folder=self.folder,
            short_s=self.recipes.short_s, estimator=self.choice,
            prepared_s=prepared_s(self.candidates.evaluator), recipe=recipe, evaluated=tuple(evaluated),
            failed=tuple(self.failed),
            finalists=tuple(finalists), winners=tuple(best), random_baseline=random_baseline, zoo=tuple(zoo),
            seconds=self.budget.account(), estimate=dict(expected or {}), cost_usd=self.budget.cost_usd,
            interrupted=self.interrupts.asked, floors=self.floors, notes=tuple(self.notes),
        )  # fmt: skip
        document = write_evidence(outcome)
        if not self.interrupts.asked:
            shutil.rmtree(self.folder.baseline("zoo"), ignore_errors=True)  # large, and nobody asks for them again
        write_json(self.folder.account, self.budget.account())
        return SearchResult(document, self.folder.path, INTERRUPTED if self.interrupts.asked else 0)

    @contextmanager
    def _stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        with self.progress.stage(name, total) as bar:
            try:
                yield BookedStage(bar, self.budget, self.folder.account)
            finally:  # what came after its last step, also where no network was delivered
                write_json(self.folder.account, self.budget.account())

    def _left_s(self) -> float:
        return self.budget.left_s - REPORT_S

    def _repeat_s(self) -> float:
        return REPEAT_SHARE * max(0.0, self._left_s())

    # -- steps -----------------------------------------------------------------------------------

    def _estimate(self) -> dict[str, float]:
        """Say what is ahead, before it starts."""
        seconds = estimate(
            self.budget.elapsed_s, self.budget.seconds, self.recipes.short_s, self.config.max_trials,
            baselines=self.config.baselines, phase=self.candidates.phase,
            supernet_s=SUPERNET_SHARE * planned_phase_s(self.recipes) if self.choice.supernet else 0.0,
        )  # fmt: skip
        ahead = ", ".join(f"{stage.replace('_', ' ')} {duration(s)}" for stage, s in seconds.items() if s)
        price = self.config.price_per_hour
        cost = f"; about {seconds['total'] / 3600 * price:.2f} USD" if price is not None else ""
        self.progress.note(f"estimate: {ahead}{cost}")
        self.progress.note(f"estimator: {self.choice.name} ({self.choice.why})")
        return seconds

    def _ready(self) -> None:
        """Train the supernet, where candidates are evaluated by one, or read it."""
        config, evaluator = self.choice.supernet, self.candidates.evaluator
        if config is None or not isinstance(evaluator, SingleEstimator) or evaluator.made is not None:
            return
        with self.budget.stage("supernet"), self._stage("supernet", config.steps) as bar, self.interrupts.abandonable():
            evaluator.prepare(lambda log: bar.advance(LOG_STEPS, note=f"loss {log.largest:.2f}"))

    def _search(self, loop: SearchLoop) -> tuple[list[Evaluated], FinalRound]:
        """Evaluate candidates, and plan the last round they lead to. A run that had come to that goes on there."""
        study = loop.study(SEARCH_STUDY, self.candidates.sampler())
        known = read_final_plan(self.folder)
        if known is None and not self.interrupts.asked:
            self._ready()
        plan, until_s, goes_on = known, self.plan.deadlines.search_short_until_s, True
        evaluated = self.candidates.usable(loop.evaluated(study))
        while plan is None and goes_on and not self.interrupts.asked:
            trials, most = len(study.trials), most_candidates(self.choice.name, self.config.max_trials)
            with (
                self.budget.stage(self.candidates.phase),
                self._stage(PHASES[self.candidates.phase], most) as bar,
                self.interrupts.abandonable(),
            ):
                loop.run(study, self.budget, until_s, bar, at_most=most)
            # A run that was killed may go on after its time: that it found nothing new is no reason to end then.
            goes_on = len(study.trials) > trials or self.budget.elapsed_s > until_s
            evaluated = self.candidates.usable(loop.evaluated(study))
            plan = self._last_round(evaluated)
            if plan is not None and goes_on and plan.spare_s > SPARE_SHARE * until_s:
                until_s, plan = self.budget.elapsed_s + plan.spare_s, None
        self.engine.rest()  # trainings of finalists need the memory
        self.failed = loop.failed(study)
        self.notes += loop.remarks(study)
        plan = plan or self._last_round(evaluated)
        if plan is not None and known is None and not self.interrupts.asked:  # else it goes on when it is continued
            write_final_plan(self.folder, plan)
        plan = plan or FinalPlan(self.recipes.base, 1)
        left_out = [d.name for d in self.target.model.deployments if d not in self.final_round(plan).deployments]
        if left_out:
            self.notes.append(f"the budget did not reach {', '.join(left_out)}: no network was tried in it")
        return evaluated, self.final_round(plan)

    def _last_round(self, evaluated: Sequence[Evaluated]) -> FinalPlan | None:
        """The last round that these candidates lead to, if it began now; None without any."""
        if not evaluated:
            return None
        return plan_last_round(
            self.recipes, evaluated, self.budget, self.plan.deadlines.search_until_s,
            len(self.target.model.deployments), self.scorer.worth_trying, trained=self.choice.name == SHORT,
            at_once=self.engine.full_trainings,
            possible=self._possible,
        )  # fmt: skip

    def _possible(self, evaluated: Sequence[Evaluated], full_image_s: float) -> list[Evaluated]:
        """Those to plan the last round by, as far as a small part of its time tells."""
        found, until_s = list(evaluated), self.budget.elapsed_s + CHECKING_SHARE * full_image_s * len(self.data.train)
        if self.interrupts.asked:
            return found
        first = self.final_round(FinalPlan(self.recipes.base, 1))
        with self.budget.stage("final_training"), self.interrupts.abandonable():
            found = first.without_hopeless(evaluated, full_image_s, lambda: self.budget.elapsed_s < until_s)
        return found

    def final_round(self, plan: FinalPlan) -> FinalRound:
        return FinalRound(
            space=self.space, data=self.data, scorer=self.scorer, recipe=plan.recipe, size=plan.size,
            full_image_s=plan.full_image_s,
            deployments=plan.deployments(self.target.model.deployments), objective=self.config.objective,
            limits=self.config.limits,
            max_drop=self.config.max_drop, site=self.site, folder=self.folder.finalists,
            fewer_threads=fewer_threads(self.config.seconds, self.config.threads), weights=self.candidates.weights,
            skip_missed=self.folder.reused.exists(), left_s=self._left_s, deploy_s=self.recipes.deploy_s,
            elsewhere=self.engine.elsewhere(self.data), claim=self.engine.storage.claim,
            promising=self.promising, missed=self.missed,
        )  # fmt: skip

    def _finals(self, final: FinalRound, candidates: Sequence[Evaluated], name: str, until_s: float) -> list[Finalist]:
        """As many finalists as the time and an interrupt allow."""
        found: list[Finalist] = []
        training_s = IN_TIME * (final.recipe.time_limit_s or 0.0)

        def in_time() -> bool:
            return self.budget.elapsed_s + training_s <= until_s or not math.isfinite(self.budget.seconds)

        if self.interrupts.asked:
            return found
        with self._stage(name, final.size) as bar, self.interrupts.abandonable():
            for finalist in final.run(candidates, bar, in_time):
                found.append(finalist)
        return found

    def _anytime(self, final: FinalRound, candidates: Sequence[Evaluated]) -> list[Finalist]:
        """After an interrupt: one finalist with what is there, a training that was finished or else a quick one."""
        trained = [c for c in candidates if final.is_recorded(c)]
        if not trained:
            recipe = final.recipe.changed(time_limit_s=ANYTIME_S)
            final = replace(final, recipe=recipe, full_image_s=ANYTIME_S / len(self.data.train))
        with self._stage("the best so far", 1) as bar:
            return list(replace(final, size=1, elsewhere=None).run(trained or candidates, bar))

    def _baselines(
        self, loop: SearchLoop, final: FinalRound, search_evaluations: int, best: Finalist
    ) -> tuple[RandomBaseline | None, list[Baseline]]:
        """The baselines, as far as an interrupt allows."""
        random_baseline: RandomBaseline | None = None
        zoo: list[Baseline] = []
        if not self.config.baselines:
            self.notes.append(
                "the budget went to the winner alone: --baselines also trains networks to compare it with"
            )
            return random_baseline, zoo
        with self.interrupts.abandonable():
            if not self.interrupts.asked:
                random_baseline = self._random_baseline(loop, final, search_evaluations)
            if not self.interrupts.asked:
                zoo = self._zoo(final, best)
        if self.interrupts.asked:
            self.notes.append("interrupted: baselines that were not finished are left out")
        return random_baseline, zoo

    def _random_baseline(self, loop: SearchLoop, final: FinalRound, search_evaluations: int) -> RandomBaseline | None:
        """The best of N random networks under the same limits: same estimator, same time for estimates (at most as
        many), same recipe and number of finalists. None where none kept the limits, or the budget has no room for a
        single one."""
        spent = self.budget.account()
        if not room_for_baseline(self.budget.elapsed_s, self.budget.seconds, spent, search_evaluations, final.size):
            self.notes.append("the budget did not reach random search")
            return None
        self._ready()
        if self.interrupts.asked:
            return None
        blind = replace(loop, proxies=None)
        spent = self.budget.account()
        short_s = spent.get(self.candidates.phase, 0.0) - spent.get("random_baseline", 0.0)
        with self.budget.stage("random_baseline"):
            study = blind.study(RANDOM_STUDY, self.candidates.random_sampler())
            with self._stage("random networks", search_evaluations) as bar:
                until = self.budget.elapsed_s + short_s if math.isfinite(self.budget.seconds) else math.inf
                evaluated = blind.run(study, self.budget, until, bar, at_most=search_evaluations)
            final_s = STRETCH * spent.get("final_training", 0.0)  # room for networks that train more slowly
            until_s = min(self.budget.elapsed_s + final_s, self.budget.seconds - REPORT_S)
            finalists = self._finals(final, evaluated, "random finalists", until_s)
        best = winners(self.config.objective, finalists, 1)
        if not best:
            return None
        return RandomBaseline(evaluated=tuple(evaluated), finalists=tuple(finalists), finalist=best[0])

    def _zoo(self, final: FinalRound, winner: Finalist) -> list[Baseline]:
        chosen = winner.deployed.chosen
        assert chosen is not None
        if self.site is None:
            self.notes.append("well-known networks were not measured: the target is not at hand")
            return []
        round_ = ZooRound(
            data=self.data, input=winner.deployed.description.signature.input, deployments=final.deployments,
            quick=chosen.deployment, recipe=final.recipe, max_drop=self.config.max_drop,
            folder=self.folder.baseline("zoo"), site=self.site, elsewhere=self.engine.elsewhere(self.data),
        )  # fmt: skip
        with self.budget.stage("baselines"), self._stage("well-known networks") as bar:
            found = round_.run(self.budget, self.plan.zoo_until_s(self.budget), bar)
        missing = names_not_reached(task_of(self.data).baselines, found)
        if missing:
            self.notes.append(f"the budget did not reach {', '.join(missing)}")
        return found
