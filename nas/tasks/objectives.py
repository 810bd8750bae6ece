"""The part of `nas.training.objective.Objective` that is the same for every task: what it knows of its examples."""

from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from nas.tasks.examples import Examples
from nas.tasks.task import TaskSplit
from search_spaces import TensorSpec


class Images(TaskSplit, Protocol):
    """Examples with images."""

    @property
    def images(self) -> NDArray[np.uint8]:
        """(n, side, side, 3)."""
        ...


Split = TypeVar("Split", bound=TaskSplit)
ImagesSplit = TypeVar("ImagesSplit", bound=Images)


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
        self._images = torch.from_numpy(examples.train.images)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        images = self._images.index_select(0, indices).to(self._device)
        prepared: torch.Tensor = self._examples.preprocess.tensor(images)
        return prepared
