"""The learning rate as a function of the optimiser step alone, so that a resumed training needs no schedule state."""

import math

from nas.training.optim import lr_factor
from nas.training.recipe import Recipe

_START = 0.04
"""Of the peak, where one-cycle begins (Smith and Topin 2018)."""


def learning_rate(recipe: Recipe, peak: float, step: int, steps_per_epoch: int) -> float:
    """The rate of optimiser step `step`, from 0.

    Args:
        peak: the largest rate.
        steps_per_epoch: of the optimiser.
    """
    schedule = recipe.schedule
    epoch = (step + 0.5) / steps_per_epoch
    # A warm-up as long as the training would leave no decay.
    warmup = min(schedule.warmup_epochs / max(1, recipe.epochs), 0.9)
    progress = min(1.0, epoch / max(1, recipe.epochs))
    if schedule.name == "step":
        rise = 0.05 + 0.95 * progress / warmup if progress < warmup else 1.0
        return peak * rise * schedule.step_factor ** sum(epoch > after for after in schedule.step_epochs)
    if schedule.name == "one-cycle" and progress < warmup:
        return peak * (_START + (1 - _START) * 0.5 * (1 - math.cos(math.pi * progress / warmup)))
    factor = lr_factor(progress, warmup)
    if progress < warmup:
        return peak * factor
    return peak * (schedule.final_lr_fraction + (1 - schedule.final_lr_fraction) * factor)
