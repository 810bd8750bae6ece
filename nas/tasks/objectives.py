"""The part of `nas.training.objective.Objective` that is the same for every task: what it knows of its examples."""

from typing import Generic, Protocol, TypeVar

import torch

from nas.data.stored import Images
from nas.tasks.examples import Examples
from nas.tasks.pixels import Pixels
from nas.tasks.task import TaskSplit
from search_spaces import TensorSpec


class WithImages(TaskSplit, Protocol):
    """Examples with images."""

    @property
    def images(self) -> Images:
        """(n, side, side, 3)."""
        ...


Split = TypeVar("Split", bound=TaskSplit)
ImagesSplit = TypeVar("ImagesSplit", bound=WithImages)


class ExamplesObjective(Generic[Split]):
    """An objective over the examples of one training, on one device."""

    def __init__(self, examples: Examples[Split], device: torch.device) -> None:
        self._examples, self._device = examples, device

    @property
    def input(self) -> TensorSpec:
        return self._examples.train.input

    @property
    def train_examples(self) -> int:
        return len(self._examples.train)

    @property
    def val_examples(self) -> int:
        return len(self._examples.val)


class ImagesObjective(ExamplesObjective[ImagesSplit]):
    """An objective over images, which are normalised as the deployed network takes them."""

    def __init__(self, examples: Examples[ImagesSplit], device: torch.device) -> None:
        super().__init__(examples, device)
        self._pixels = Pixels(examples.train.images, device)

    def pixels(self, indices: torch.Tensor) -> torch.Tensor:
        """The training images at `indices` (b,) int64, (b, side, side, 3) uint8 on the device."""
        return self._pixels.at(indices)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        prepared: torch.Tensor = self._examples.preprocess.tensor(self.pixels(indices))
        return prepared
