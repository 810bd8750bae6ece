"""The label behind every decision of a search: a candidate's accuracy (its task's metric) after a short training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.networks.description import NetworkDescription
from nas.tasks import TaskData, task_of
from nas.tasks.examples import examples_of
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback, TrainResult, Validates

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ShortTraining:
    """Training that compares candidates: all with the same recipe, images and seed."""

    recipe: Recipe
    train_images: int | None = None
    """Use only this many training images, drawn at random; None: all."""


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
    examples = examples_of(data, description.signature.input, train_images=short.train_images, seed=recipe.seed)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        network = description.build()
    device, named = resolve_device("auto"), recipe.distillation.teacher
    teacher = None if named is None else load_teacher(named, data, description.signature.input, device)
    objective = task_of(data).objective(network, examples, recipe, device=device, teacher=teacher)
    return network, train(network, objective, recipe, callback=callback, teacher=teacher, validates=validates)
