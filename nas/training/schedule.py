"""The learning rate as a function of the share of the training that is done, so that it needs no state."""

import math

from nas.training.recipe import ScheduleSettings

_START = 0.04
"""Share of the peak at which one-cycle begins (Smith and Topin 2018)."""
_LONGEST_WARMUP = 0.9
"""Largest share of the training for the warm-up: one as long as the training would leave no decay."""


def learning_rate(settings: ScheduleSettings, peak: float, progress: float, epochs: int) -> float:
    """The rate of an optimiser step.

    Args:
        settings: the recipe's schedule.
        peak: the largest rate.
        progress: share of the training that is done in the middle of the step, in [0, 1].
        epochs: of the whole training.
    """
    warmup = max(settings.warmup_fraction, min(settings.warmup_epochs / max(1, epochs), _LONGEST_WARMUP))
    if settings.name == "step":
        rise = 0.05 + 0.95 * progress / warmup if progress < warmup else 1.0
        return peak * rise * settings.step_factor ** sum(progress * epochs > after for after in settings.step_epochs)
    if settings.name == "one-cycle" and progress < warmup:
        return peak * (_START + (1 - _START) * 0.5 * (1 - math.cos(math.pi * progress / warmup)))
    factor = lr_factor(progress, warmup)
    if settings.name == "linear" and progress >= warmup:
        factor = 1 - (min(progress, 1.0) - warmup) / (1 - warmup)
    if progress < warmup:
        return peak * factor
    return peak * (settings.final_lr_fraction + (1 - settings.final_lr_fraction) * factor)


def lr_factor(progress: float, warmup_fraction: float) -> float:
    """Share of the peak learning rate at `progress` in [0, 1]: linear warm-up, then cosine to 0 (Loshchilov 2017)."""
    if progress < warmup_fraction:
        # Not from zero: the first step would be wasted.
        return 0.05 + 0.95 * progress / warmup_fraction
    decay = (progress - warmup_fraction) / (1 - warmup_fraction)
    return 0.5 * (1 + math.cos(math.pi * min(decay, 1.0)))
