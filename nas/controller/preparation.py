"""Decisions of a search before its first candidate: plan, recipes, who may be proposed, and who estimates."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler

from nas.controller.config import SearchConfig
from nas.controller.engine import Engine
from nas.controller.evaluators import trains
from nas.controller.inputs import SearchInputs
from nas.controller.planning.budget import Budget
from nas.controller.planning.estimator_choice import EstimatorChoice, estimator_choice, remarks
from nas.controller.planning.plan_record import SearchPlan, search_plan
from nas.controller.planning.recipes import Recipes, make_recipes
from nas.controller.prediction.feasibility import examples
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.runs.run_folder import RunFolder, default_settings
from nas.controller.trials import trained_briefly
from nas.evaluation.short_training import enough_to_compare
from nas.limits import LatencyLimit
from nas.networks.libraries import cached_networks
from nas.samplers import RandomFeasibleSampler, WithExamples
from nas.tasks import TaskData
from search_spaces import Choices

SEARCH_STUDY, RANDOM_STUDY = "search", "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSearch:
    """A search whose inputs were found good and whose plan is made; nothing of it was trained yet."""

    inputs: SearchInputs
    plan: SearchPlan
    scorer: CandidateScorer
    """Asks also whether the training of a candidate is affordable."""
    examples: Choices
    """(n, decisions): networks that keep the limits, where hardly any random one does; else of length 0."""
    choice: EstimatorChoice
    notes: tuple[str, ...]
    """Remarks that a reader of the result should know."""

    @property
    def recipes(self) -> Recipes:
        return self.plan.recipes


def prepare_search(inputs: SearchInputs, folder: RunFolder, budget: Budget, engine: Engine) -> PreparedSearch:
    """Plan the search of these inputs, or read the plan and the choice of an estimator that the run recorded.

    Measures how fast a machine that trains does where no recent measurement is known; records plan and choice in
    `folder`.
    """
    config, space, data = inputs.config, inputs.space, inputs.data
    plan = search_plan(
        folder, budget, lambda known: make_recipes(config, space, data, known, engine.run), baselines=config.baselines
    )
    affordable, costs = plan.recipes.affordable(len(inputs.target.model.deployments))
    scorer, found, none = searchable(inputs.scorer, affordable, config.seed)
    notes = [remark for remark in (none or costs, busy(plan.recipes)) if remark]
    labels = 0
    if folder.reused.exists():  # trials of another run: they were trained briefly
        sampler: BaseSampler = RandomFeasibleSampler(space, WithExamples(scorer.feasible, found), seed=config.seed)
        about = {"space": space.name, "data": data.name}
        labels = len(trained_briefly(engine.storage.study(SEARCH_STUDY, sampler, about)))
    phase_s = plan.deadlines.search_short_until_s - budget.elapsed_s
    choice = estimator_choice(config.estimator, folder, plan.recipes, scorer.feasible, phase_s, labels)
    notes += remarks(choice, len(data.train), config.max_trials)
    part = in_part(data) if trains(choice.name) else None
    notes += [part] if part else []
    return PreparedSearch(inputs=inputs, plan=plan, scorer=scorer, examples=found, choice=choice, notes=tuple(notes))


def in_part(data: TaskData) -> str | None:
    """A remark where short trainings are validated on a part of the validation examples."""
    every = enough_to_compare(data)
    if every == 1:
        return None
    count = len(range(0, len(data.val), every))
    return f"short trainings are validated on {count} of the {len(data.val)} validation examples, finalists on all"


def busy(recipes: Recipes) -> str | None:
    """A remark where other processes took this host's cores while its training throughput was measured."""
    others = recipes.throughput.others
    if not others:
        return None
    return (
        f"other processes kept {others:.1f} cores busy while the speed of training was measured: trainings are planned "
        "for a machine as busy as that"
    )


def unused_weights(config: SearchConfig) -> list[str]:
    """A remark on published weights that lie on this machine, where a search may begin from them (see
    `nas.baseline.config`); empty where there are none."""
    defaults = default_settings(SearchConfig)
    refused = ("target", "ray", "objective", "teacher", "top", "max_trials", "metric", "class_weights", "baselines")
    usual = all(getattr(config, name) == defaults[name] for name in refused)
    if not usual or config.limits.limits_tail or [limit.name for limit in config.limits] != [LatencyLimit.name]:
        return []
    try:
        names = cached_networks(config.task)
    except OSError:  # a cache that is not ours to read
        return []
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return [f"published weights of {names[0]}{more} are in a cache here: --weights auto tries them"] if names else []


def searchable(
    scorer: CandidateScorer, affordable: Callable[[Choices], NDArray[np.bool_]] | None, seed: int
) -> tuple[CandidateScorer, Choices, str | None]:
    """The scorer that a search asks, `examples` for it, and a remark or None.

    It asks whether a training is affordable, too, unless a tight limit leaves no network that keeps it and can be
    trained in time: then all that keep the limits may be proposed, and the remark says so.
    """
    remark = None
    asking = scorer.asking(affordable)
    found = examples(asking, np.random.default_rng(seed))
    if found is None and affordable is not None:
        remark = "what keeps the limits takes longer to train than planned for this budget, and is tried all the same"
        asking = scorer.asking(None)
        found = examples(asking, np.random.default_rng(seed))
    return asking, scorer.space.sample(0, np.random.default_rng(seed)) if found is None else found, remark
