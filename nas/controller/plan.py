"""How a budget becomes recipes, by rules: all networks get the same, and a repetition decides the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nas.evaluation.short_training import ShortTraining
from nas.training.config import TrainConfig

SEARCH_SHARE = 0.40
"""Of the time left after preparation. The random baseline gets as much, the zoo the rest; without baselines the search
gets nearly all of it."""
ALONE_SHARE = 0.95
SHORT_SHARE = 0.5
"""Of the search's time: short trainings; the rest trains and deploys the finalists."""

SHORT_TRAININGS = 12
"""What the short phase should afford."""
SHORT_EPOCHS = (2, 4)
MIN_SHORT_IMAGES = 512
FINAL_EPOCHS = (5, 40)
FINALISTS = 2
STRETCH = 1.5
"""A finalist may take this much longer to train than the best candidates are expected to; then its learning rate has
come down to zero and it ends, whatever the number of epochs. Otherwise one slow network would eat the budget."""
DEPLOY_S = 3.5
"""Exporting, quantising, checking and measuring one deployment of one small network."""

TRAIN_S_PER_MAC, TRAIN_S_PER_ACTIVATION, TRAIN_S_PER_DEPTHWISE_MAC = 2.2e-11, 3.3e-9, 2.2e-9
"""Seconds of one thread per image of bf16 training: non-negative fit to 36 networks of `mixed` at 32, 64 and 128 px on
a Xeon with AMX, mean error 14 %. Depthwise convolutions cost a hundred times more per MAC than dense ones there."""
FP32_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Wall-clock marks of the search proper, in seconds since the budget started."""

    search_short_until_s: float
    search_until_s: float


def schedule(elapsed_s: float, budget_s: float, *, baselines: bool) -> Schedule:
    """Divide what is left of the budget."""
    left = max(0.0, budget_s - elapsed_s)
    arm = (SEARCH_SHARE if baselines else ALONE_SHARE) * left
    return Schedule(search_short_until_s=elapsed_s + SHORT_SHARE * arm, search_until_s=elapsed_s + arm)


def nominal_image_s(costs: Mapping[str, NDArray[np.float64]], threads: int, *, bf16: bool) -> NDArray[np.float64]:
    """What training one image of each network should take, (n,) seconds, from `StagedSpace.costs` alone.

    Not a measurement on purpose: what is proposed depends on it, and the same seed has to propose the same candidates
    also when the machine happens to be slower. A slower machine finishes fewer candidates in its time.
    """
    seconds: NDArray[np.float64] = (
        TRAIN_S_PER_MAC * costs["macs"]
        + TRAIN_S_PER_ACTIVATION * costs["activations"]
        + TRAIN_S_PER_DEPTHWISE_MAC * costs["depthwise_macs"]
    )
    return seconds * (1.0 if bf16 else FP32_FACTOR) / threads


def affordable_image_s(available_s: float, train_images: int, deployments: int) -> float:
    """Seconds per image beyond which a finalist cannot be trained for the fewest epochs in `available_s`."""
    share = max(available_s / FINALISTS, min(available_s, 2 * DEPLOY_S * deployments))
    training = max(0.4 * share, share - DEPLOY_S * deployments)
    return STRETCH * training / (FINAL_EPOCHS[0] * train_images)


def short_training(recipe: TrainConfig, train_images: int, image_s: float, seconds: float) -> ShortTraining:
    """The recipe for comparing candidates: as many epochs and images as fit into `seconds`.

    `image_s` is the candidate's nominal training time per image, so that all candidates get the same time: what counts
    in the end is the accuracy a network reaches within the budget, and a slow one reaches it later.
    """
    passes = seconds / image_s
    lowest, highest = SHORT_EPOCHS
    epochs = int(min(highest, max(lowest, passes // train_images)))
    images = min(train_images, max(MIN_SHORT_IMAGES, int(passes / epochs)))
    return ShortTraining(replace(recipe, epochs=epochs), images if images < train_images else None)


def final_recipe(recipe: TrainConfig, epoch_s: float, available_s: float, deployments: int) -> tuple[TrainConfig, int]:
    """The recipe every compared network is trained with, and how many finalists there are.

    A second finalist is only worth it where both get at least twice the fewest epochs.
    """
    lowest, highest = FINAL_EPOCHS
    for count in range(FINALISTS, 0, -1):
        epochs = int((available_s / count - DEPLOY_S * deployments) / max(epoch_s, 1e-9))
        if epochs >= 2 * lowest or count == 1:
            epochs = min(highest, max(lowest, epochs))
            return replace(recipe, epochs=epochs, time_limit_s=STRETCH * epochs * epoch_s), count
    raise AssertionError("unreachable")
