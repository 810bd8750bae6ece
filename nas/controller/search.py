"""One search from inputs to evidence. Each step is a function of its own; this file is their order."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from nas.controller.arm import Arm, Evaluated, Failed, best_first
from nas.controller.baselines import Baseline, ZooRound, names_not_reached
from nas.controller.budget import Budget
from nas.controller.config import SearchConfig
from nas.controller.feasibility import DeploymentRange, latency_ranges, require_feasible
from nas.controller.finalists import Finalist, FinalRound, move_files, ranked
from nas.controller.plan import (
    FINALISTS,
    SHORT_TRAININGS,
    Schedule,
    affordable_image_s,
    final_recipe,
    nominal_image_s,
    schedule,
    short_training,
)
from nas.controller.proxies import proxy_scores
from nas.controller.receipt import write_receipt
from nas.controller.result import Outcome, RandomOpponent, candidate_rows, result_document
from nas.controller.run_folder import RunFolder, check_folder, open_folder, write_candidates
from nas.controller.sampler import RandomFeasibleSampler, SurrogateSampler
from nas.controller.scoring import LatencyScorer
from nas.controller.target_model import TargetModel, prepare_target
from nas.data import ImageData, load_dataset
from nas.errors import LimitMissedError
from nas.evaluation.short_training import ShortTraining
from nas.export.checkpoint import NetworkDescription, write_json
from nas.measure.host import usable_threads
from nas.progress import Progress, SilentProgress
from nas.targets.registry import load_target
from nas.training.config import TrainConfig
from search_spaces import Architecture, Choices, StagedSpace, load_search_space

SEARCH_STUDY, RANDOM_STUDY = "search", "random"
CHEAPEST_SHARE = 0.05
"""Of the space that is never left out for its training cost."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search leaves behind."""

    document: dict[str, Any]
    """The result as in `result.json`."""
    run_dir: Path
    exit_code: int
    """0, or 3 where no network kept the limit when it was measured."""


def run_search(config: SearchConfig, progress: Progress | None = None) -> SearchResult:
    """Search as `config` says; a run folder that holds a finished run of it is only read.

    Raises `UserError` for wrong input before anything is written, `InfeasibleError` where the limit is out of reach,
    `LimitMissedError` where no finalist kept it.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # progress is told by `progress`
    progress = progress or SilentProgress()
    budget = Budget(config.budget_s)
    folder = check_folder(config)
    if folder.result.exists():
        progress.note(f"{folder.path} holds this run's result already")
        return SearchResult(json.loads(folder.result.read_text()), folder.path, 0)
    with budget.stage("prepare"):
        load_target(config.target)  # a misspelt name should not wait for the data
        whole = load_search_space(config.space)
        data = load_dataset(config.data, seed=config.seed)
        space = whole.restrict("resolution", config.resolutions or default_resolutions(whole, data))
    with budget.stage("calibrate"):
        target = prepare_target(config, budget, progress)
    with budget.stage("prepare"):
        rng = np.random.default_rng(config.seed)
        ranges = latency_ranges(space, target.model, config.latency_ms, data.num_classes, rng)
        require_feasible(ranges, config.latency_ms, config.space, config.target)
        open_folder(config, folder)
    return _Search(config, progress, budget, folder, data, space, target, ranges).run()


def default_resolutions(space: StagedSpace, data: ImageData) -> list[int]:
    """The space's resolutions near the data's own: none above it, none below half of it.

    More pixels than there are cost time and show nothing new; far fewer lose what there is to see.
    """
    options = sorted(int(r) for r in space.decisions[space.column("resolution")].options)
    fitting = [r for r in options if 0.5 * data.native_resolution < r <= data.native_resolution]
    return fitting or [min(options, key=lambda r: abs(r - data.native_resolution))]


class _Search:
    """The steps of one search after its inputs were found good, in the order of `run`."""

    def __init__(
        self,
        config: SearchConfig,
        progress: Progress,
        budget: Budget,
        folder: RunFolder,
        data: ImageData,
        space: StagedSpace,
        target: TargetModel,
        ranges: Sequence[DeploymentRange],
    ) -> None:
        self.config = config
        self.progress = progress
        self.budget = budget
        self.folder = folder
        self.data = data
        self.space = space
        self.target = target
        self.ranges = tuple(ranges)
        self.scorer = LatencyScorer(space, target.model, config.latency_ms, data.num_classes)
        self.proxies = proxy_scores(space, data, config.seed)
        self.notes: list[str] = []
        self.failed: list[Failed] = []
        self.short_seconds = 0.0
        self.short_limit_s = 0.0
        self.finalists = FINALISTS

    def run(self) -> SearchResult:
        with self.budget.stage("prepare"):
            recipe = self._recipe()
            marks = schedule(self.budget.elapsed_s, self.budget.seconds, baselines=self.config.baselines)
            short = self._short_recipe(recipe)
            self._limit_training_cost(recipe)
            arm = Arm(
                space=self.space, data=self.data, scorer=self.scorer, short=short, proxies=self.proxies,
                storage=self.folder.study,
            )  # fmt: skip
        evaluated = self._evaluate(arm, marks)
        final = self._final_round(recipe, evaluated, marks)
        with self.budget.stage("final_training"):
            finalists = self._finals(final, best_first(evaluated, lambda e: e.accuracy), "finalists")
        winners = ranked(finalists)[: self.config.top]
        if not winners:
            raise limit_missed(finalists, self.config.latency_ms)
        opponent = self._random_baseline(arm, final, len(evaluated)) if self.config.baselines else None
        zoo = self._zoo(final, winners[0]) if self.config.baselines else []
        winners = [move_files(w, self.folder.winner(rank)) for rank, w in enumerate(winners, start=1)]
        if opponent is not None:
            opponent = replace(
                opponent, finalist=move_files(opponent.finalist, self.folder.path / "baselines" / "random")
            )
        return self._finish(arm, final.recipe, evaluated, finalists, winners, opponent, zoo)

    # -- steps -----------------------------------------------------------------------------------

    def _recipe(self) -> TrainConfig:
        """The training recipe, with fp32 or bf16 chosen by measuring on a typical network."""
        from nas.training.precision import choose_precision

        recipe = TrainConfig(seed=self.config.seed)
        typical = self._typical()
        precision = choose_precision(typical.build(), typical.resolution, recipe.batch_size)
        return replace(recipe, precision=precision)

    def _short_recipe(self, recipe: TrainConfig) -> Callable[[Architecture], ShortTraining]:
        """From the budget, the data and the candidate alone, so that it is the same in every repetition."""
        marks = schedule(0.0, self.budget.seconds, baselines=self.config.baselines)
        seconds = marks.search_short_until_s / SHORT_TRAININGS

        def short(arch: Architecture) -> ShortTraining:
            image_s = float(self._image_s(self.space.choices([arch]), recipe)[0])
            return short_training(recipe, len(self.data.train), image_s, seconds)

        self.short_limit_s = seconds
        return short

    def _limit_training_cost(self, recipe: TrainConfig) -> None:
        """Leave out candidates whose training would not fit the budget, but never the cheapest ones."""
        marks = schedule(0.0, self.budget.seconds, baselines=self.config.baselines)
        final_s = marks.search_until_s - marks.search_short_until_s
        limit = affordable_image_s(final_s, len(self.data.train), len(self.target.model.deployments))
        sampled = self._image_s(self.space.sample(2048, np.random.default_rng(self.config.seed)), recipe)
        limit = max(limit, float(np.quantile(sampled, CHEAPEST_SHARE)))
        self.scorer.affordable = lambda choices: self._image_s(choices, recipe) <= limit
        left_out = float((sampled > limit).mean())
        if left_out > 0.01:
            self.notes.append(
                f"{left_out:.0%} of the space was left out: training one such network would take more than "
                f"{1000 * limit:.1f} ms per image, too long for a budget of {self.budget.seconds:g} s"
            )

    def _image_s(self, choices: Choices, recipe: TrainConfig) -> NDArray[np.float64]:
        costs = self.space.costs(choices, self.data.num_classes)
        return nominal_image_s(costs, usable_threads(), bf16=recipe.precision == "bf16")

    def _typical(self) -> NetworkDescription:
        """A well-known design at the largest resolution: what times are estimated with."""
        arch = max(self.space.anchors, key=self.space.resolution)
        return NetworkDescription(arch, self.data.num_classes, self.space.resolution(arch))

    def _evaluate(self, arm: Arm, marks: Schedule) -> list[Evaluated]:
        sampler = SurrogateSampler(self.space, self.scorer.feasible, self.proxies, seed=self.config.seed)
        study = arm.study(SEARCH_STUDY, sampler)
        began = self.budget.elapsed_s
        with self.budget.stage("short_training"), self.progress.stage("short trainings") as bar:
            evaluated = arm.run(study, self.budget, marks.search_short_until_s, bar)
        self.failed = arm.failed(study)
        self.short_seconds = self.budget.elapsed_s - began
        return evaluated

    def _final_round(self, recipe: TrainConfig, evaluated: Sequence[Evaluated], marks: Schedule) -> FinalRound:
        """Fix the full recipe by what training the leaders really took."""
        leaders = best_first(evaluated, lambda e: e.accuracy)[:FINALISTS]
        epoch_s = float(np.mean([e.seconds_per_image for e in leaders])) * len(self.data.train)
        deployments = self.target.model.deployments
        available = marks.search_until_s - self.budget.elapsed_s
        final, self.finalists = final_recipe(recipe, epoch_s, available, len(deployments))
        return FinalRound(
            space=self.space,
            data=self.data,
            scorer=self.scorer,
            deployments=deployments,
            recipe=final,
            limit_ms=self.config.latency_ms,
            max_drop=self.config.max_drop,
            measured_here=self.target.is_host,
        )

    def _finals(self, final: FinalRound, candidates: Sequence[Evaluated], name: str) -> list[Finalist]:
        found: list[Finalist] = []
        with self.progress.stage(name, total=self.finalists) as bar:
            for candidate in final.admissible(candidates, self.finalists):
                work = self.folder.work(f"{name}-{candidate.trial}")
                found.append(final.train_and_deploy(candidate, work, bar))
        return found

    def _random_baseline(self, arm: Arm, final: FinalRound, search_evaluations: int) -> RandomOpponent | None:
        """The best of N random networks under the same limit: same time for short trainings (at most as many), same
        recipe and number of finalists. None where none kept the limit."""
        sampler = RandomFeasibleSampler(self.space, self.scorer.feasible, seed=self.config.seed)
        blind = replace(arm, proxies=None)
        with self.budget.stage("random_baseline"):
            study = blind.study(RANDOM_STUDY, sampler)
            with self.progress.stage("random networks", total=search_evaluations) as bar:
                until = self.budget.elapsed_s + self.short_seconds
                evaluated = blind.run(study, self.budget, until, bar, at_most=search_evaluations)
            order = best_first(evaluated, lambda e: e.accuracy)
            finalists = self._finals(final, order, "random finalists")
        best = ranked(finalists)
        return RandomOpponent(evaluated=tuple(evaluated), finalist=best[0]) if best else None

    def _zoo(self, final: FinalRound, winner: Finalist) -> list[Baseline]:
        chosen = winner.deployed.chosen
        assert chosen is not None
        if not self.target.is_host:
            self.notes.append("well-known networks were not measured: the target is not this host")
            return []
        round_ = ZooRound(
            data=self.data,
            resolution=winner.deployed.description.resolution,
            deployments=final.deployments,
            quick=chosen.deployment,
            recipe=final.recipe,
            max_drop=self.config.max_drop,
            folder=self.folder.work("zoo"),
        )
        with self.budget.stage("baselines"), self.progress.stage("well-known networks") as bar:
            found = round_.run(self.budget, self.budget.seconds, bar)
        missing = names_not_reached(found)
        if missing:
            self.notes.append(f"the budget did not reach {', '.join(missing)}")
        return found

    def _finish(
        self,
        arm: Arm,
        recipe: TrainConfig,
        evaluated: Sequence[Evaluated],
        finalists: Sequence[Finalist],
        winners: Sequence[Finalist],
        opponent: RandomOpponent | None,
        zoo: Sequence[Baseline],
    ) -> SearchResult:
        from nas.report.html import write_report

        outcome = Outcome(
            config=self.config,
            folder=self.folder,
            data=self.data,
            space=self.space,
            target=self.target,
            ranges=self.ranges,
            scorer=self.scorer,
            short_s=self.short_limit_s,
            recipe=recipe,
            evaluated=tuple(evaluated),
            failed=tuple(self.failed),
            finalists=tuple(finalists),
            winners=tuple(winners),
            opponent=opponent,
            zoo=tuple(zoo),
            seconds=self.budget.account(),
            notes=tuple(self.notes),
        )
        rows = candidate_rows(outcome)
        document = result_document(outcome)
        write_candidates(self.folder, rows)
        import pandas as pd

        write_report(document, pd.DataFrame(rows), self.folder.report)
        for entry in document["best"]:
            write_receipt(self.folder.winner(entry["rank"]), document, entry, self.data)
        write_json(self.folder.result, document)
        shutil.rmtree(self.folder.work(""), ignore_errors=True)
        return SearchResult(document, self.folder.path, 0)


def limit_missed(finalists: Sequence[Finalist], limit_ms: float) -> LimitMissedError:
    """What to say where no finalist kept the limit: how near they came."""
    slowest = [
        t.measurement.worst_session_p50_ms
        for f in finalists
        for t in f.deployed.tried
        if t.measurement is not None and t.measurement.failed is None
    ]
    nearest = f"; the nearest took {min(slowest):.3g} ms in its slowest session" if slowest else ""
    return LimitMissedError(
        f"no candidate kept {limit_ms:g} ms when its exported file was measured{nearest}",
        "ask for a higher --latency-ms, give a longer --budget, or make a finer profile with `nas profile`",
    )
