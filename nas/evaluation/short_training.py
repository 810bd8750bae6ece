"""The label behind every decision of a search: a candidate's accuracy (its task's metric) after a short training."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nas.networks.description import NetworkDescription
from nas.tasks import TaskData, task_of
from nas.training.config import TrainConfig, TrainResult

if TYPE_CHECKING:
    from torch import nn

    from nas.training.loop import EpochCallback


@dataclass(frozen=True, slots=True)
class ShortTraining:
    """How candidates are compared: all with the same recipe, images and seed."""

    config: TrainConfig
    train_images: int | None = None
    """Use only this many training images, drawn at random; None: all."""


def trained(
    description: NetworkDescription,
    data: TaskData,
    short: ShortTraining,
    callback: "EpochCallback | None" = None,
) -> tuple["nn.Module", TrainResult]:
    """Build and train one network; returns it with its result (the task's metric on the validation split).

    `callback` is told of every epoch and may end the training after it.
    """
    import torch

    train_split = data.for_input("train", description.signature.input)
    if short.train_images is not None and short.train_images < len(train_split):
        train_split = train_split.some(short.train_images, short.config.seed)
    with torch.random.fork_rng():
        torch.manual_seed(short.config.seed)
        network = description.build()
    result = task_of(data).train(
        network,
        train_split,
        data.for_input("val", description.signature.input),
        replace(short.config, flip=data.flip_ok),
        preprocess=data.preprocess,
        callback=callback,
    )
    return network, result
