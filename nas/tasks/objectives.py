"""The part of `nas.training.objective.Objective` that is the same for every task: what it knows of its examples."""

from typing import Generic, Protocol, TypeVar

import torch

from nas.data.stored import Images, StoredImages
from nas.tasks.examples import Examples
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
        images = examples.train.images
        self._images = images if isinstance(images, StoredImages) else torch.from_numpy(images)

    def pixels(self, indices: torch.Tensor) -> torch.Tensor:
        """The training images at `indices` (b,) int64, (b, side, side, 3) uint8 on the device."""
        if isinstance(self._images, StoredImages):
            return torch.from_numpy(self._images[indices.numpy()]).to(self._device)
        # index_select copies whole images; an index goes through them byte by byte.
        return self._images.index_select(0, indices).to(self._device)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        prepared: torch.Tensor = self._examples.preprocess.tensor(self.pixels(indices))
        return prepared
