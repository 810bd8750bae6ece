"""Times that trainings took: they plan the last round, and contradict a recorded throughput that is wrong."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import (
    FINALISTS,
    REPORT_S,
    FinalPlan,
    affordable_deployments,
    fewest_deployments,
    final_plan,
    final_time_s,
    open_end_plan,
    wanted_finalists,
)
from nas.controller.planning.recipes import OVERHEAD, Recipes
from nas.controller.planning.throughput import forget_wrong_throughput
from nas.controller.promise import most_promising
from nas.controller.runs.records import Trained
from nas.controller.values import Evaluated
from nas.deployment import Deployment
from nas.executors.gpus import workers_here
from nas.tasks import task_of
from search_spaces import Architecture


def plan_last_round(
    recipes: Recipes,
    evaluated: Sequence[Evaluated],
    budget: Budget,
    until_s: float,
    deployments: int,
    worth_trying: Callable[[Architecture, int], Sequence[Deployment]],
    *,
    trained: bool,
    at_once: int = 1,
    possible: Callable[[Sequence[Evaluated], float], Sequence[Evaluated]] | None = None,
) -> FinalPlan:
    """Fix the full recipe by what training the leaders really took; by nominal times where no clock may decide.

    Args:
        recipes: the search's.
        evaluated: all candidates; at least one.
        budget: the search's.
        until_s: when the last round has to be over, in seconds since the budget started.
        deployments: how many of them each finalist is tried in where there is time for all.
        worth_trying: where there is not: so many that one candidate is best tried in.
        trained: whether candidates were compared by short trainings.
        at_once: full trainings that can run side by side.
        possible: leaves out candidates that the last round would not train, by the seconds of a full training for each
            training image; None: all are possible. Asked where a clock decides and candidates were `trained`.
    """
    config, images, shape = recipes.config, len(recipes.data.train), task_of(recipes.data).shape
    full_image_s = (until_s - budget.elapsed_s) / images if math.isfinite(budget.seconds) else None
    if possible is not None and trained and full_image_s is not None:
        evaluated = possible(evaluated, full_image_s)
    leaders = most_promising(evaluated, recipes.space, recipes.data.output_size, full_image_s)[:FINALISTS]
    wanted = wanted_finalists(config.objective, config.winners, trained=trained)
    if not math.isfinite(budget.seconds):
        epoch_s = float(np.mean([recipes.image_s(e.arch) for e in leaders])) * images
        return open_end_plan(recipes.base, epoch_s, deployments, wanted, shape=shape, baselines=config.baselines)
    if wanted == FINALISTS and config.winners == 1:  # else one network is no answer, however long it is trained
        shape = shape.for_examples(images)
    # The first is trained first, and often alone: with the mean, a slower second one would cost it epochs.
    epoch_s = recipes.full_image_s(leaders[0]) * images
    available_s = until_s - budget.elapsed_s  # finding out what is possible took some
    if trained:
        left_s = budget.seconds - budget.elapsed_s - REPORT_S
        least = fewest_deployments(available_s, deployments, recipes.deploy_s)
        available_s = final_time_s(available_s, max(e.seconds for e in leaders), left_s, least, recipes.deploy_s)
    tried = affordable_deployments(available_s, deployments, recipes.deploy_s)
    plan = final_plan(
        recipes.base, epoch_s, available_s, tried, wanted, shape=shape, deploy_s=recipes.deploy_s, at_once=at_once
    )
    names = None if tried == deployments else tuple(d.name for d in worth_trying(leaders[0].arch, tried))
    return replace(plan, tried=names, full_image_s=full_image_s)


def doubt_throughput(
    recipes: Recipes,
    evaluated: Sequence[Evaluated],
    full: Sequence[tuple[Architecture, Trained]] = (),
    epochs: int = 0,
    folder: Path | None = None,
) -> str | None:
    """Have the next search on this host measure its throughput again where trainings took another time than it says.

    Args:
        recipes: what this search's trainings were planned with; they stay as they are.
        evaluated: candidates. Those that were trained on other machines, or on a share of the cores, say nothing.
        full: finalists and their trainings. Those that had other than `epochs` epochs were ended by the clock.
        epochs: of a full training.
        folder: the user's cache.

    Returns a remark where the throughput was forgotten.
    """
    alone = recipes.config.ray is None and workers_here(recipes.config.workers) == 1
    took = [
        (e.arch, e.seconds_per_image, recipes.short_batch(e.arch)) for e in evaluated if alone and e.seconds_per_image
    ]
    images = epochs * len(recipes.data.train)
    batch = recipes.base.changed(epochs=epochs).batch_for(len(recipes.data.train))
    if recipes.config.ray is None:
        took += [(arch, outcome.seconds / images, batch) for arch, outcome in full if outcome.epochs == epochs]
    ratios = [seconds / (OVERHEAD * recipes.image_s(arch, batch)) for arch, seconds, batch in took]
    ratio = forget_wrong_throughput(recipes.space, recipes.base, recipes.throughput, ratios, folder)
    if ratio is None:
        return None
    return (
        f"trainings took {ratio:.2g} times as long as this host's recorded training throughput said: the next search "
        "measures it again"
    )
