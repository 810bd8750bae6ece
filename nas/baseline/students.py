"""Networks assembled from a library, and their training: all of it is to say what the teacher says."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas.baseline.as_int8 import AsDeployed
from nas.baseline.library import Library
from nas.baseline.smaller import behind_smaller_images
from nas.baseline.teacher import TeacherNetwork
from nas.networks.description import NetworkDescription
from nas.tasks import task_of
from nas.tasks.examples import Examples, examples_of
from nas.training.batch_norm import recalibrate_batch_norm
from nas.training.batches import Batches
from nas.training.distill import Teacher
from nas.training.folder import kept_setup, train_in
from nas.training.loop import Training
from nas.training.objective import Objective, random_inputs
from nas.training.precision import resolve_device
from nas.training.recipe import Recipe
from nas.training.setup import ENOUGH_S, Setup, choose_setup, step_seconds, update_seconds
from nas.training.world import World

COMPARED, NORMED = 512, 256
"""Training examples on which networks are compared with the teacher (those for validation are kept for decisions
between few), and those among them that batch-norm statistics are taken from."""
LEARNING_RATES = {"lr": 0.02, "turn_lr": 0.02}
"""Of a network that knows most of it already: below those of one that begins from nothing."""
VIEWS = 8
"""Epochs with augmented examples of their own, which the epochs after them and other students take again: the teacher's
answers to them, often the larger part of a student's price, are kept."""
MOST_KEPT_BYTES = 2**30
"""Of such answers: of large data with many classes fewer views are kept, or none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classroom:
    """A teacher with the examples it teaches on."""

    teacher: TeacherNetwork
    network: nn.Module
    """The teacher's, on the device, in evaluation mode."""
    device: torch.device
    """That trains: the GPU where there is one. What is measured is measured on the processor all the same."""
    examples: Examples[Any]
    objective: Objective
    glance: Objective
    """The same with few validation examples, to compare many networks."""
    recipe: Recipe
    """Everything but the number of epochs."""
    inputs: tuple[torch.Tensor, ...]
    """Batches (b, ...) of training examples to compare networks on."""
    answers: tuple[torch.Tensor, ...]
    """What the teacher says of them, (b, ...) each."""

    asked: Teacher
    """The teacher of students' trainings: what it said to one, it need not say to another."""

    def batches(self, size: int, seed: int, start: int) -> Iterator[torch.Tensor]:
        """Augmented inputs (b, ...) of the steps from `start` on, without end."""
        order = Batches(self.objective.train_examples, size, seed)
        epoch, skipped = divmod(start, order.per_epoch)
        while True:
            for number, (indices, generator) in enumerate(order.epoch(epoch)):
                if number >= skipped:
                    yield self.objective.batch(indices, generator, 0.5)[0]
            epoch, skipped = epoch + 1, 0

    def distance(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        """How far outputs (b, ...) are from the teacher's, a scalar; 0 where they say the same."""
        return self.objective.distillation_loss(outputs, teacher_outputs)


def classroom(teacher: TeacherNetwork, seed: int) -> Classroom:
    """The room for a teacher whose students learn from its answers alone: labels on top make them worse (Bercovich
    et al. 2024, Puzzle, section 5)."""
    data, device = teacher.data, resolve_device("auto")
    network = copy.deepcopy(teacher.reference.network).to(device).eval()
    task, signature = task_of(data), teacher.description.signature
    views = min(VIEWS, MOST_KEPT_BYTES // (4 * math.prod(signature.output.shape) * len(data.train)))
    recipe = task.recipe(
        start="trained", seed=seed, draws="step", distillation={"logits_weight": 1.0, "views": views},
        optimizer=LEARNING_RATES,
    )  # fmt: skip
    examples = examples_of(data, signature.input)
    few = replace(examples, val=examples.val.some(COMPARED))
    objective, glance = (
        task.objective(teacher.reference.network, each, recipe, device=device) for each in (examples, few)
    )
    inputs = tuple(random_inputs(objective, COMPARED))
    with torch.no_grad():
        answers = tuple(network(batch) for batch in inputs)
    return Classroom(
        teacher=teacher, network=network, device=device, examples=examples, objective=objective,
        glance=glance, recipe=recipe, inputs=inputs, answers=answers,
        asked=Teacher(network, teacher.reference.text),
    )  # fmt: skip


@torch.no_grad()
def assemble(room: Classroom, library: Library, options: Sequence[str], resolution: int | None = None) -> nn.Sequential:
    """A network of the library's options, on its device, with batch-norm statistics of its own.

    It takes the teacher's images, and makes them smaller first where `resolution` says so.
    """
    network = behind_smaller_images(library.network(options), resolution)
    recalibrate_batch_norm(network, room.inputs[: max(1, NORMED * len(room.inputs) // COMPARED)])
    return network.eval()


@torch.no_grad()
def loss_against_teacher(room: Classroom, network: nn.Module) -> float:
    """Mean distance from the teacher over `COMPARED` training examples."""
    network.eval()
    pairs = zip(room.inputs, room.answers, strict=True)
    return sum(float(room.distance(network(batch), answers)) for batch, answers in pairs) / len(room.inputs)


def compared(room: Classroom, network: nn.Module, computes: AsDeployed | None) -> tuple[float, float]:
    """A network's mean distance from the teacher as `loss_against_teacher` says, and its accuracy on up to `COMPARED`
    validation examples, in torch.

    `computes`: how it does once it is deployed; None: as it is.
    """
    network = network.eval() if computes is None else computes(network.eval(), room.inputs[0])
    return loss_against_teacher(room, network), room.glance.validate(network, "fp32").accuracy


def asked_epochs(recipe: Recipe, examples: int, epochs: int, before: int = 0) -> int:
    """Of the epochs of a student's training, those in which the teacher has to answer.

    Args:
        recipe: of students, whatever its number of epochs.
        examples: to learn from.
        epochs: of the training.
        before: epochs of an earlier training of this or another student, whose answers are kept.
    """
    views = recipe.distillation.views
    if not views:
        return epochs
    sizes = {recipe.changed(epochs=each).batch_for(examples) for each in (epochs, before)}
    return max(0, min(epochs, views) - (min(before, views) if len(sizes) == 1 else 0))


def epoch_seconds(room: Classroom, network: nn.Module) -> tuple[float, float]:
    """Expected seconds of an epoch of training under the teacher: of the network, and of the teacher where it is
    asked."""
    recipe, input = room.recipe, room.teacher.description.signature.input
    size = recipe.batch_for(room.objective.train_examples)
    setup = Setup(precision="fp32", channels_last=True, batch_size=size)
    step_s = step_seconds(network, input, setup, room.device, enough_s=ENOUGH_S)
    step_s += update_seconds(network, recipe.optimizer, room.device, precision="fp32", enough_s=ENOUGH_S)
    answer_s = step_seconds(room.network, input, setup, room.device, enough_s=ENOUGH_S) / 3  # forwards alone
    steps = max(1, round(room.objective.train_examples / size))
    return step_s * steps, answer_s * steps


@dataclass(slots=True, kw_only=True, eq=False)
class Student:
    """A network that learns from the teacher."""

    network: nn.Module
    """Takes the teacher's images, see `assemble`."""
    description: NetworkDescription
    folder: Path
    accuracy: float
    """So far, on validation examples, in torch."""
    seconds: float = 0.0
    """Of its last training."""


def train_student(room: Classroom, student: Student, stage: str, epochs: int) -> None:
    """Train in place, from where the stage's folder inside the student's says; sets the student's accuracy.

    The network ends on the processor, whatever device trained it.

    Raises:
        UserError: the training diverged, or the folder holds another one.
    """
    recipe = room.recipe.changed(epochs=epochs)
    input = room.teacher.description.signature.input
    folder = student.folder / stage
    setup = kept_setup(folder) or choose_setup(
        recipe, student.network, input, room.objective.train_examples, room.device
    )
    training = Training(
        student.network, room.objective, recipe, world=World(0, 1, room.device), setup=setup, teacher=room.asked,
        validates="last",
    )  # fmt: skip
    result = train_in(folder, training)
    if training.network is not student.network:
        student.network.load_state_dict(training.network.state_dict())
    student.network.eval().cpu()
    student.accuracy = result.accuracy
    student.seconds = sum(record.seconds for record in training.curve)
