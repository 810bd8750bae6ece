"""An accuracy that can be had without a network: what is delivered has to be worth more than that."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

GUESSING_MARGIN, LINEAR_MARGIN = 2.0, -1.0
"""Standard errors: a network has to be surely better than guessing, and not surely worse than a linear model."""


class Labelled(Protocol):
    """A split of examples with classes."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) int64."""

    def __len__(self) -> int: ...


Split = TypeVar("Split", bound=Labelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A simple way to answer, and how right it is."""

    name: str
    """For people, such as `guessing`."""
    accuracy: float
    """Fraction on the validation split, by the task's metric."""
    test: float | None
    """Fraction on the test split; nothing is decided by it. None where it was not looked at."""
    margin: float
    """A network is worth delivering from this many standard errors above `accuracy`; below it where negative."""
    seconds: float
    """Wall-clock time it took."""

    def least(self, standard_error: float | None) -> float:
        """The validation accuracy from which a network is worth delivering; without a standard error `accuracy`."""
        return self.accuracy + self.margin * (standard_error or 0.0)

    def to_json(self) -> dict[str, Any]:
        """A document for people and reports."""
        return asdict(self)


def guessing(train: Split, val: Split, test: Split, accuracy_of: Callable[[NDArray[np.int64], Split], float]) -> Floor:
    """The most frequent class of the training examples for every example.

    Args:
        train, val, test: the splits.
        accuracy_of: the task's metric of predicted classes, (n,) int64, on a split of n examples.
    """
    start = time.perf_counter()
    frequent = int(np.bincount(train.labels).argmax())
    found, on_test = (accuracy_of(np.full(len(split), frequent), split) for split in (val, test))
    seconds = time.perf_counter() - start
    return Floor(name="guessing", accuracy=found, test=on_test, margin=GUESSING_MARGIN, seconds=seconds)


def missed_floor(accuracy: float, floors: Sequence[Floor], standard_error: float | None) -> Floor | None:
    """The highest floor that a network of this validation accuracy is not worth more than; None where it is."""
    missed = [floor for floor in floors if accuracy < floor.least(standard_error)]
    return max(missed, key=lambda floor: floor.accuracy, default=None)
