"""How a budget becomes a recipe: decided once, before the first training, so that all networks get the same."""

from dataclasses import dataclass, replace

from nas.evaluation.short_training import ShortTraining
from nas.training.config import TrainConfig

SHORT_TRAININGS = 14
"""What the short phase should afford, at the speed of the first well-known design."""
SHORT_EPOCHS = (2, 4)
MIN_SHORT_IMAGES = 512
FINAL_EPOCHS = (4, 40)
FINALISTS = 2
MACS_HEADROOM = 3.0
"""Candidates may cost this many times the MACs of the well-known designs, else one training eats the budget."""

NOMINAL_MACS_PER_S = {True: 20e9, False: 8e9}
"""Forward MACs per second and thread of training in bf16 and in fp32 (the backward pass included in the time)."""

SEARCH_SHARE = 0.40
"""Of the time left after preparation. The random baseline gets as much, the zoo the rest; without baselines the search
gets nearly all of it."""
ALONE_SHARE = 0.95
SHORT_SHARE = 0.5
"""Of an arm's time: short trainings; the rest trains and deploys the finalists."""
DEPLOY_SHARE = 0.35
"""Of the finalists' time: export, quantisation and measuring."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Wall-clock marks of the search proper, in seconds since the budget started."""

    search_short_until_s: float
    search_until_s: float


def schedule(elapsed_s: float, budget_s: float, *, baselines: bool) -> Schedule:
    """Divide what is left of the budget."""
    left = max(0.0, budget_s - elapsed_s)
    arm = (SEARCH_SHARE if baselines else ALONE_SHARE) * left
    search_end = elapsed_s + arm
    return Schedule(search_short_until_s=elapsed_s + SHORT_SHARE * arm, search_until_s=search_end)


def nominal_epoch_s(macs: float, images: int, threads: int, *, bf16: bool) -> float:
    """What an epoch should take, from the cost of the network alone.

    Not a measurement on purpose: the recipe of the short trainings decides what is proposed next, and the same seed has
    to propose the same candidates also when the machine happens to be slower. A machine slower than this finishes
    fewer candidates in its time.
    """
    return macs * images / (threads * NOMINAL_MACS_PER_S[bf16])


def short_training(
    recipe: TrainConfig, train_images: int, epoch_s: float, available_s: float, wanted: int = SHORT_TRAININGS
) -> ShortTraining:
    """The recipe for comparing candidates: as many epochs and images as `wanted` trainings leave time for.

    `epoch_s` is one epoch over all training images for a typical candidate.
    """
    per_candidate = available_s / wanted
    lowest, highest = SHORT_EPOCHS
    epochs = int(min(highest, max(lowest, per_candidate // max(epoch_s, 1e-9))))
    images = None
    if epochs * epoch_s > 1.2 * per_candidate:
        share = per_candidate / (epochs * epoch_s)
        images = max(min(MIN_SHORT_IMAGES, train_images), int(share * train_images))
    return ShortTraining(replace(recipe, epochs=epochs), images)


def final_recipe(recipe: TrainConfig, epoch_s: float, available_s: float, networks: int) -> TrainConfig:
    """The recipe every compared network is trained with: as many epochs as `networks` trainings leave time for."""
    lowest, highest = FINAL_EPOCHS
    affordable = int(available_s * (1 - DEPLOY_SHARE) / max(networks * epoch_s, 1e-9))
    return replace(recipe, epochs=min(highest, max(lowest, affordable)))
