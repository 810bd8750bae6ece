"""Evaluations of a small network on a few images."""

import numpy as np

from nas.data import ImageData, ImageSplit, Preprocess
from nas.evaluation.short_training import ShortTraining
from nas.executors.base import Evaluation
from nas.networks.description import NetworkDescription
from nas.tasks import TASKS
from search_spaces import load_search_space
from tests.nas.detectors import smallest

RESOLUTION = 32


def images(count: int, seed: int = 0) -> ImageSplit:
    rng = np.random.default_rng(seed)
    return ImageSplit(rng.integers(0, 255, (count, RESOLUTION, RESOLUTION, 3), np.uint8), np.arange(count) % 3)


def tiny_data() -> ImageData:
    """Noise in three classes."""
    return ImageData(
        name="noise",
        classes=("a", "b", "c"),
        train=images(24),
        val=images(12, 1),
        test=images(12, 2),
        native_resolution=RESOLUTION,
        preprocess=Preprocess((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    )


def task(trial: int = 0, *, seed: int = 0, lr: float = 0.05, epochs: int = 1) -> Evaluation:
    """A training of a network of the space `mobile`."""
    space = load_search_space("mobile").restrict("resolution", [RESOLUTION])
    arch = space.architecture(space.sample(1, np.random.default_rng(seed))[0])
    recipe = TASKS["classification"].recipe(
        epochs=epochs, batch_size=8, precision="fp32", seed=seed, optimizer={"lr": lr}
    )
    description = NetworkDescription.of_architecture(space, arch, (3,))
    return Evaluation(study="s", trial=trial, description=description, data="noise", short=ShortTraining(recipe))


def box_task(trial: int = 0, *, epochs: int = 1) -> Evaluation:
    """A training of the smallest detector on `tests.nas.detectors.rectangle_data`."""
    recipe = TASKS["detection"].recipe(
        epochs=epochs, batch_size=8, precision="fp32", seed=trial, augmentation={"crop": "none"}
    )
    return Evaluation(
        study="s", trial=trial, description=smallest(), data="rectangles", short=ShortTraining(recipe)
    )  # fmt: skip
