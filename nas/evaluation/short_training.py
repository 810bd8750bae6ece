"""The label behind every decision of a search: a candidate's accuracy (its task's metric) after a short training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.networks.description import NetworkDescription
from nas.tasks import TaskData, TaskSplit, task_of
from nas.tasks.examples import examples_of
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback, TrainResult, Validates

if TYPE_CHECKING:
    from torch import nn

ENOUGH, ENOUGH_STD = 5000, 0.0075
"""Validation examples that candidates are compared on, if these make the accuracy of a half-right network as sure as
that (its standard error): further ones cost time and change no order, of which a short training is less sure."""


@dataclass(frozen=True, slots=True)
class ShortTraining:
    """Training that compares candidates: all with the same recipe, images and seed."""

    recipe: Recipe
    train_images: int | None = None
    """Use only this many training images, drawn at random; None: all."""
    val_images: int | None = None
    """Validate on this many validation images, drawn at random and the same for all candidates; None: on all."""

    def validation(self, data: TaskData) -> TaskSplit:
        """The validation examples that count, as they are stored."""
        return data.val if self.val_images is None else data.val.some(self.val_images)


def enough_to_compare(data: TaskData) -> int | None:
    """Number of validation examples that candidates are compared on; None: all of them.

    Where some classes are rare and all count alike, many examples make little sure, and none is left out.
    """
    if len(data.val) <= ENOUGH:
        return None
    std = task_of(data).standard_error(0.5, data.val.some(ENOUGH))
    return ENOUGH if std is not None and std <= ENOUGH_STD else None


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
        train_images=short.train_images, val_images=short.val_images, seed=recipe.seed,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        network = description.build()
    device, named = resolve_device("auto"), recipe.distillation.teacher
    teacher = None if named is None else load_teacher(named, data, description.signature.input, device)
    objective = task_of(data).objective(network, examples, recipe, device=device, teacher=teacher)
    return network, train(network, objective, recipe, callback=callback, teacher=teacher, validates=validates)
