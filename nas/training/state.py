"""The state of a training as a value: tensors by name, and the numbers beside them.

A training that is restored from it goes on as if it had never ended: weights, optimiser, averages, and where the next
random numbers come from.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from nas.errors import UserError
from nas.files.tensors import Tensors
from nas.training.loop import Training
from nas.training.optimizer import group_numbers, optimizer_tensors, restore_optimizer
from nas.training.result import EpochRecord


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """All that a training knows after an epoch."""

    tensors: Tensors
    numbers: dict[str, Any]
    """Values that can be written as JSON: recipe, setup, curve, and the numbers of optimiser, scaler and averages."""


def state_of(training: Training) -> TrainingState:
    """The training's state between two epochs; its tensors are the training's own."""
    tensors = {
        **prefixed("learner", training.learner.state_dict()),
        **prefixed("optimizer", optimizer_tensors(training.optimizer)),
        **prefixed("sums", training.last_epochs.sums),
        **prefixed("random", training.batches.random_state()),
    }
    if training.average is not None:
        tensors.update(prefixed("average", training.average.module.state_dict()))
    return TrainingState(
        tensors,
        {
            "recipe": training.recipe.to_json(),
            "setup": asdict(training.setup),
            "optimizer": group_numbers(training.optimizer),
            "scaler": training.scaler.state_dict(),
            "curve": [asdict(record) for record in training.curve],
            "summed": training.last_epochs.count,
        },
    )


def restore(training: Training, state: TrainingState) -> None:
    """Undo `state_of` in a training of the same recipe and network.

    Raises:
        UserError: the state is of another recipe or network.
    """
    numbers, tensors = state.numbers, state.tensors
    if numbers.get("recipe") != training.recipe.to_json():
        raise UserError("this is the state of a training with another recipe", "begin anew in another folder")
    try:
        training.learner.load_state_dict(below("learner", tensors))
        if training.average is not None:
            training.average.module.load_state_dict(below("average", tensors))
        restore_optimizer(training.optimizer, below("optimizer", tensors), numbers["optimizer"])
        if training.scaler.is_enabled():
            training.scaler.load_state_dict(numbers["scaler"])
    except (RuntimeError, ValueError) as error:
        raise UserError("this is the state of another network's training", "begin anew in another folder") from error
    device = training.world.device
    training.last_epochs.sums = {k: v.to(device) for k, v in below("sums", tensors).items()}
    training.last_epochs.count = numbers["summed"]
    training.random_state = below("random", tensors)
    training.curve = [EpochRecord(**record) for record in numbers["curve"]]
    training.clock.earlier_s = sum(record.seconds for record in training.curve)


def prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """`prefix.name` for each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The tensors whose names begin with `prefix`, without it: the inverse of `prefixed`."""
    return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}
