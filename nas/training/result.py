"""A training's course and end: plain values. Importing this is cheap: no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from nas.training.precision import Precision

Stopped = Literal["diverged", "time limit", "pruned by callback", "no gain"]
"""Reason why a training ended before its last epoch; `no gain`: see `EarlyStoppingSettings`."""


Validates = Literal["each", "last"]
"""Epochs after which a training validates its network: a short one can spend more time on that than on learning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One finished epoch."""

    epoch: int
    """Number of the epoch, from 1."""
    lr: float
    """Learning rate of the last step."""
    train_loss: float
    """Mean over the epoch's batches, with augmentation, smoothing and distillation."""
    val_accuracy: float
    """The task's metric on the validation examples, a fraction, in the training's precision; of the averaged weights
    where the recipe has an average. NaN after an epoch that was not validated."""
    examples_per_s: float
    """Training examples per second of training time, waiting for data included."""
    data_wait_share: float
    """Fraction of the training time that was spent on fetching and augmenting examples."""
    seconds: float
    """Seconds of the epoch, validation included."""


EpochCallback = Callable[[EpochRecord], bool | None]
"""Gets each finished epoch; True ends the training (pruning)."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Outcome of a training."""

    accuracy: float
    """The task's metric on the validation examples at the end, a fraction; 0 where the training diverged (the weights
    are then useless)."""
    curve: tuple[EpochRecord, ...]
    """The finished epochs."""
    seconds: float
    """Seconds of all sessions together."""
    stopped: Stopped | None
    """None: all epochs were done."""
    precision: Precision
    """Number format of its forward and backward passes."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Other metrics of the last validation by name, where the task has some and this session validated."""

    @property
    def image_s(self) -> float | None:
        """Seconds of training per example, the median of the finished epochs, without validation; None without any."""
        return 1 / median(record.examples_per_s for record in self.curve) if self.curve else None
