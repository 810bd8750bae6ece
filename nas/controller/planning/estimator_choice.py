"""Choice of a search's estimator and of its supernet's training: decided once, from nominal figures, and recorded."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.controller.evaluators import labels_wanted
from nas.controller.planning.plan import STRETCH, schedule
from nas.controller.planning.recipes import Recipes
from nas.controller.runs.run_folder import RunFolder
from nas.deployment import CPU
from nas.evaluation.estimators import SUPERNET_EPOCHS, SUPERNET_SHARE, choose_estimator
from nas.evaluation.supernet.config import RANDOM_PATHS, SupernetConfig, supernet_recipe
from nas.evaluation.supernet.sandwich import Sandwich
from nas.files.writing import write_json
from nas.measure.host import usable_threads
from search_spaces import Choices

Admissible = Callable[[Choices], NDArray[np.bool_]]

_TYPICAL = 64
"""Random candidates that tell what a short training takes."""
_STEPS = 16
"""Steps of a supernet that tell what one takes."""
_MOST = 0.85
"""Largest share of the time for estimates that a supernet on a slow machine may take."""


@dataclass(frozen=True, slots=True)
class EstimatorChoice:
    """The estimator that was chosen, and the reason."""

    name: str
    why: str
    supernet: SupernetConfig | None = None
    """Training of the supernet, where there is one."""


def read_choice(folder: RunFolder) -> EstimatorChoice | None:
    """The choice recorded when the run began; None where there is no record."""
    if not folder.estimator.exists():
        return None
    document: dict[str, Any] = json.loads(folder.estimator.read_text())
    supernet = document["supernet"]
    return EstimatorChoice(document["name"], document["why"], SupernetConfig.from_json(supernet) if supernet else None)


def estimator_choice(
    asked: str, folder: RunFolder, recipes: Recipes, admissible: Admissible, phase_s: float, labels: int
) -> EstimatorChoice:
    """The recorded choice, or a new one, recorded.

    Args:
        asked: a name of `ESTIMATORS`, or `auto`.
        folder: the run's.
        recipes: its trainings.
        admissible: candidates that may be proposed.
        phase_s: time that is left for estimates, by the clock; inf where no clock may decide.
        labels: candidates of this run that were trained briefly already.
    """
    known = read_choice(folder)
    if known is not None:
        return known
    name, why, config = asked, "asked for", None
    planned_s = planned_phase_s(recipes)
    if asked == "auto":
        short_s = typical_short_s(recipes, admissible)
        device = recipes.throughput.device
        where = f"{usable_threads()} threads" if device == CPU else device
        name, why = choose_estimator(planned_s, where, short_s=short_s, labels=labels)
    elif asked == "supernet":
        config = supernet_config(recipes, supernet_image_s(recipes, admissible), planned_s, phase_s)
    choice = EstimatorChoice(name, why, config)
    write_json(folder.estimator, {"name": name, "why": why, "supernet": config.to_json() if config else None})
    return choice


def planned_phase_s(recipes: Recipes) -> float:
    """Nominal time for estimates."""
    return schedule(0.0, recipes.planned_s, baselines=recipes.config.baselines).search_short_until_s


def typical_short_s(recipes: Recipes, admissible: Admissible) -> float:
    """Nominal seconds of a short training: those planned, or fewer where all epochs fit, or more where the fewest do
    not."""
    rows = recipes.space.sample(_TYPICAL, np.random.default_rng(recipes.config.seed))
    fitting = rows[admissible(rows)]
    found = []
    for row in fitting if len(fitting) else rows:
        arch = recipes.space.architecture(row)
        short = recipes.short(arch)
        images = short.train_images or len(recipes.data.train)
        found.append(short.recipe.epochs * images * recipes.image_s(arch, short.recipe.batch_for(images)))
    return float(np.median(found))


def supernet_image_s(recipes: Recipes, admissible: Admissible) -> float:
    """Nominal seconds that one image takes in one step of a supernet, through all paths of the step."""
    sandwich, rng = Sandwich(recipes.space, RANDOM_PATHS, admissible), np.random.default_rng(0)
    steps = [sum(recipes.image_s(arch) for arch in sandwich.draw(rng)) for _ in range(_STEPS)]
    return float(np.mean(steps))


def supernet_config(recipes: Recipes, image_s: float, planned_s: float, phase_s: float) -> SupernetConfig:
    """Configuration with as many steps as should fit into the supernet's share of the time for estimates.

    Steps are counted by nominal times, so that the same seed trains the same supernet; only a machine that is much
    slower is stopped by the clock.
    """
    recipe = supernet_recipe(recipes.base)
    batch = min(recipe.fixed_batch_size, len(recipes.data.train))
    steps = max(1, int(SUPERNET_SHARE * planned_s / (batch * image_s)))
    limit_s = min(STRETCH * SUPERNET_SHARE * planned_s, _MOST * max(phase_s, 1.0))
    return SupernetConfig(
        steps=steps,
        recipe=recipe.changed(
            batch_size=batch,
            seed=recipes.config.seed,
            time_limit_s=limit_s if math.isfinite(phase_s) else None,
        ),
    )


def remarks(choice: EstimatorChoice, images: int, max_trials: int | None) -> list[str]:
    """Remarks that a reader of the result should know before believing the estimates."""
    if choice.name == "zero-cost":
        return ["candidates were ordered by zero-cost scores: nothing was trained before the last round"]
    if choice.name == "predictor":
        wanted = labels_wanted(max_trials)
        return [f"the first {wanted} candidates were trained briefly, later ones predicted from them"]
    if choice.supernet is None:
        return []
    passes = choice.supernet.steps * choice.supernet.recipe.fixed_batch_size / images
    few = f": nothing is known of an order after fewer than {SUPERNET_EPOCHS}" if passes < SUPERNET_EPOCHS else ""
    return [f"the supernet was given {choice.supernet.steps} steps, {passes:.1f} passes over the training images{few}"]
