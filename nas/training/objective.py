"""A task's objective: all that a training does not know of the task it trains for."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from nas.training.precision import Precision
from search_spaces import TensorSpec

LOSS = "loss"
"""Name of the mean validation loss in the details of a validation, where a task tells it."""
DIVERGED_FACTOR = 100
"""A loss of this many times that of guessing cannot come from a training that works."""


@dataclass(frozen=True, slots=True)
class Validation:
    """A network's figures on the validation examples."""

    accuracy: float
    """The task's metric, a fraction."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Other metrics by name."""


class Objective(Protocol):
    """Batches, losses and metric of one task, over the examples of one training, on one device.

    `Task.objective` makes it. It remembers nothing of the training: every figure hangs on the arguments alone.
    """

    @property
    def input(self) -> TensorSpec:
        """Input of networks for these examples."""
        ...

    @property
    def train_examples(self) -> int:
        """Number of examples to learn from, at least 2."""
        ...

    @property
    def val_examples(self) -> int:
        """Number of validation examples, at least 1."""
        ...

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        """Training examples as the deployed network takes them: (b, ...) on the device, nothing drawn.

        Args:
            indices: (b,) int64.
        """
        ...

    def batch(self, indices: torch.Tensor, generator: torch.Generator, progress: float) -> tuple[torch.Tensor, Any]:
        """Augmented training examples (b, ...) on the device, and targets for `loss`.

        Args:
            indices: (b,) int64.
            generator: of what is drawn, beside torch's global one; a CPU generator.
            progress: share of the training that is done, in [0, 1].
        """
        ...

    def loss(self, outputs: torch.Tensor, targets: Any) -> torch.Tensor:
        """A float32 scalar with a gradient."""
        ...

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        """Distance between the outputs of network and teacher, a float32 scalar; 0 where they say the same."""
        ...

    def guessing_loss(self, first_loss: float) -> float:
        """The loss of a network that knows nothing, given that of the first batch of the training."""
        ...

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        """Figures of a network on the device, which is left in evaluation mode."""
        ...


def has_diverged(loss: float, guessing_loss: float) -> bool:
    """True if a loss is not finite, or too high for a training that works."""
    return not math.isfinite(loss) or loss > DIVERGED_FACTOR * max(1.0, guessing_loss)


def random_inputs(objective: Objective, count: int, *, batch_size: int = 64, seed: int = 0) -> Iterator[torch.Tensor]:
    """Batches of `count` random training examples (all, where there are fewer) as the deployed network takes them."""
    chosen = np.random.default_rng(seed).permutation(objective.train_examples)[:count]
    for part in np.array_split(chosen, max(1, len(chosen) // batch_size)):
        yield objective.inputs(torch.from_numpy(part))
