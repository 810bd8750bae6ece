"""The label behind every decision of a search: a candidate's validation accuracy after a short training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nas.data import ImageData
from nas.export.checkpoint import NetworkDescription
from nas.training.config import TrainConfig, TrainResult

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ShortTraining:
    """How candidates are compared: all with the same recipe, images and seed."""

    config: TrainConfig
    train_images: int | None = None
    """Use only this many training images (class-balanced as the shuffled set is); None: all."""


def trained(
    description: NetworkDescription,
    data: ImageData,
    short: ShortTraining,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple["nn.Module", TrainResult]:
    """Build and train one network; returns it with its result (accuracy as a fraction of the validation split).

    `should_stop` is asked after each epoch, so that an interruption or a spent budget does not wait for the end.
    """
    import torch

    from nas.training.loop import train

    train_split = data.at("train", description.resolution)
    if short.train_images is not None and short.train_images < len(train_split):
        chosen = np.random.default_rng(short.config.seed).permutation(len(train_split))[: short.train_images]
        train_split = train_split.take(np.sort(chosen))
    with torch.random.fork_rng():
        torch.manual_seed(short.config.seed)
        network = description.build()
    result = train(
        network,
        train_split,
        data.at("val", description.resolution),
        replace(short.config, flip=data.flip_ok),
        preprocess=data.preprocess,
        callback=lambda log: should_stop(),
    )
    return network, result
