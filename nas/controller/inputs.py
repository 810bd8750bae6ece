"""Checks and measurements before a search starts; nothing is written and nothing trained until all of it is good."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import planned_s
from nas.controller.prediction.calls import prepare_target
from nas.controller.prediction.edge import at_the_edge, near_a_tight_limit
from nas.controller.prediction.feasibility import DeploymentRange, latency_ranges, require_feasible
from nas.controller.prediction.filling import with_filled_designs
from nas.controller.prediction.probes import FileModel, probe, probe_networks
from nas.controller.prediction.processing import around_networks
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.prediction.target_model import TargetModel
from nas.controller.prediction.target_record import check_target, read_target
from nas.controller.runs.storage import check_server
from nas.controller.trials import SHORT
from nas.deployment import PIPELINE
from nas.errors import InfeasibleError, UnknownNameError, UserError
from nas.evaluation.estimators import ESTIMATORS, require_estimator
from nas.executors import check_choice
from nas.limits import Limits
from nas.measure.site import Site
from nas.networks.teachers import taught
from nas.progress import Progress
from nas.samplers import SAMPLERS
from nas.tasks import TaskData, task_named
from nas.tasks.same_data import SPLITS_FILE, require_same_data
from search_spaces import SearchSpace
from search_spaces.signature import Size

TEACHER_SHARE = 0.3
"""Of the budget, for a teacher that answers the training examples before anything else."""
PROBED_FROM = 1024
"""Random networks of which a few are probed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInputs:
    """The inputs of a search, found good."""

    config: SearchConfig
    data: TaskData
    space: SearchSpace
    target: TargetModel
    ranges: tuple[DeploymentRange, ...]
    scorer: CandidateScorer


def load_inputs(
    config: SearchConfig, budget: Budget, progress: Progress, known: Path, device: Site | None = None
) -> SearchInputs:
    """Load everything and see whether the limits can be kept.

    `known`: where the run recorded its target, if it did. `device`: another machine that is the target.

    Raises `UserError` for wrong input, also for data that changed since the run was begun, and `InfeasibleError` where
    the limits are out of reach.
    """
    with budget.stage("prepare"):
        check_target(known, config, device)  # a misspelt name should not wait for the data
        check_server(config.storage)
        check_choice(config.ray, asha=config.asha)
        check_estimator(config)
        if config.sampler not in SAMPLERS:
            raise UnknownNameError("sampler", config.sampler, SAMPLERS)
        whole, task = space_for(config), task_named(config.task)
        data = task.load(config.data, seed=config.seed, options=config.data_options)
        require_same_data(known.parent, data)
        space = task.searchable(whole, data, config.allowed)
        if config.teacher is not None:
            within_s = TEACHER_SHARE * budget.seconds
            data = taught(data, config.teacher, unlabelled=config.unlabelled, within_s=within_s, progress=progress)
    with budget.stage("calibrate"):
        recorded = read_target(known, config, device)
        target, files = recorded or (prepare_target(config, budget, progress, device), FileModel())
        files = files.fitting(config.limits)  # the record may be of a run with other limits
        if not files.known:
            files = file_model(config, space, target, data.output_size, progress)
        if config.limit_on == PIPELINE and not target.model.processing_ms:
            target = around_networks(config, target, data, space, progress)
    inputs = partial(found_good, config, data, space, files=files)
    ask = (space, data.output_size, config.limits, config.seed, progress, planned_s(budget.seconds))
    try:
        with budget.stage("prepare"):
            found = inputs(target)
    except InfeasibleError:
        if target.model.checks:
            raise
        with budget.stage("calibrate"):
            checked = at_the_edge(target, *ask)
        if checked is None:
            raise
        with budget.stage("prepare"):
            return inputs(checked)
    # What an earlier process proposed by stays, and other objectives ask about networks that are far from the limit.
    if recorded or config.objective != "accuracy":
        return found
    with budget.stage("calibrate"):
        nearer = near_a_tight_limit(target, *ask)
    if nearer is not None:
        # So few networks refuse nothing that was found possible.
        with budget.stage("prepare"), suppress(InfeasibleError):
            found = inputs(nearer)
    if config.sampler != next(iter(SAMPLERS)):  # others begin with no designs
        return found
    with budget.stage("calibrate"):
        filled = with_filled_designs(found.target, *ask)
    return found if filled is None else replace(found, target=filled)


def require_data_of(config: SearchConfig, run: Path, progress: Progress) -> None:
    """Raises `UserError` where the data of a finished run changed. Data that are gone are only told of: its result is
    still what it was."""
    if not (run / SPLITS_FILE).exists():
        return
    try:
        data = task_named(config.task).load(config.data, seed=config.seed, options=config.data_options)
    except UserError as error:
        progress.note(f"whether its data are still the same could not be checked: {error}")
        return
    require_same_data(run, data)


def found_good(
    config: SearchConfig, data: TaskData, space: SearchSpace, target: TargetModel, *, files: FileModel
) -> SearchInputs:
    """The inputs, where their limits can be kept; raises `InfeasibleError` where they cannot."""
    rng = np.random.default_rng(config.seed)
    ranges = latency_ranges(space, target.model, config.limits, data.output_size, rng)
    scorer = CandidateScorer(space, target.model, config.limits, data.output_size, files=files)
    require_feasible(ranges, scorer, config.target, rng)
    return SearchInputs(config=config, data=data, space=space, target=target, ranges=ranges, scorer=scorer)


def space_for(config: SearchConfig) -> SearchSpace:
    """The space that was asked for; raises `UserError` where its networks are for another task."""
    space = config.search_space
    if space.task != config.task:
        fitting = task_named(config.task).default_space
        raise UserError(
            f"the networks of space {config.space!r} are for {space.task}, not for {config.task}",
            f"leave out --space (it is {fitting!r} then), or give --task {space.task}",
        )
    return space


def check_estimator(config: SearchConfig) -> None:
    """Raises `UserError` for an estimator that does not exist or that the other options have no use for."""
    if config.estimator not in ("auto", *ESTIMATORS):
        raise UnknownNameError("estimator", config.estimator, ("auto", *ESTIMATORS))
    if config.estimator != "auto":
        require_estimator(config.estimator, config.task, config.search_space)
    if config.asha and config.estimator not in ("auto", SHORT):
        raise UserError(
            f"--asha stops short trainings early, and the estimator {config.estimator!r} asks for others",
            "leave out --asha, or give --estimator short",
        )


def file_model(
    config: SearchConfig, space: SearchSpace, target: TargetModel, size: Size, progress: Progress
) -> FileModel:
    """Model of everything beside latencies that the limits need to know, from networks probed on the target.

    Raises `UserError` for a limit that only the device itself could tell about.
    """
    limits = config.limits
    if not limits.needs_probes:
        return FileModel()
    if target.site is None:
        require_predictable(limits, config.target)
        return FileModel()
    what = "measuring" if limits.needs_measured_probes else "preparing"
    progress.note(f"{what} a few networks for the limits on files, memory or slow calls")
    sampled = space.sample(PROBED_FROM, np.random.default_rng(config.seed))
    archs = probe_networks(space, sampled, size, planned_s(config.seconds))
    return probe(space, archs, target.model.of_networks().deployments, limits, config.seed, target.site)


def require_predictable(limits: Limits, target: str) -> None:
    """Raises `UserError` where a limit cannot be checked because nothing can be measured on the target."""
    for limit in reversed(limits.all):
        if limit.needs == "measurements":
            raise limit.cannot_be_told(target)
