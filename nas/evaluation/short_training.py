"""The label behind every decision of a search: a candidate's accuracy (its task's metric) after a short training."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.machine import give_back_memory
from nas.networks.description import NetworkDescription
from nas.tasks import TaskData, task_of
from nas.tasks.examples import examples_of
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback, TrainResult, Validates

if TYPE_CHECKING:
    from torch import nn

ENOUGH, ENOUGH_STD = 5000, 0.0075
"""Validation examples that candidates are compared on at least, and how sure they have to make the accuracy of a
half-right network (its standard error): further ones cost time, and a short training is less sure than that."""


@dataclass(frozen=True, slots=True)
class ShortTraining:
    """Training that compares candidates: all with the same recipe, images and seed."""

    recipe: Recipe
    train_images: int | None = None
    """Use only this many training images, drawn at random; None: all."""
    validate_every: int = 1
    """Validate on every so many-th validation example: the same ones for all candidates."""

    def standard_error(self, accuracy: float, data: TaskData) -> float | None:
        """Standard deviation of the accuracy that such a training ends with because so few examples were looked at."""
        std = task_of(data).standard_error(accuracy, data.val)
        return None if std is None else std * math.sqrt(self.validate_every)


def enough_to_compare(data: TaskData) -> int:
    """`ShortTraining.validate_every` of a search's candidates; 1: all validation examples are needed.

    Where some classes are rare and all count alike, many examples make little sure, and none is left out.
    """
    every = len(data.val) // ENOUGH
    std = task_of(data).standard_error(0.5, data.val) if every > 1 else None
    return every if std is not None and std * math.sqrt(every) <= ENOUGH_STD else 1


def trained(
    description: NetworkDescription,
    data: TaskData,
    short: ShortTraining,
    callback: EpochCallback | None = None,
    *,
    validates: Validates = "each",
) -> tuple["nn.Module", TrainResult]:
    """Build and train one network; returns it with its result (the task's metric on the validation split).

    `callback` is told of every epoch and may end the training after it. `validates` after each epoch, or after the last
    alone: then the others' accuracies are NaN. Raises `UserError` where the recipe's teacher
    cannot be loaded.
    """
    import torch

    from nas.networks.teachers import load_teacher
    from nas.training.loop import train
    from nas.training.precision import resolve_device

    recipe = short.recipe
    examples = examples_of(
        data, description.signature.input,
        train_images=short.train_images, validate_every=short.validate_every, seed=recipe.seed,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        network = description.build()
    device, named = resolve_device("auto"), recipe.distillation.teacher
    teacher = None if named is None else load_teacher(named, data, description.signature.input, device)
    objective = task_of(data).objective(network, examples, recipe, device=device, teacher=teacher)
    result = train(network, objective, recipe, callback=callback, teacher=teacher, validates=validates)
    del objective, examples, teacher
    give_back_memory()
    return network, result
