"""What every predictor returns and raises."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class NotFittedError(ValueError, AttributeError):
    """`predict` was called before `fit`."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Mean and standard deviation per candidate, both of shape (n,), in the unit of the fitted target."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(f"mean {self.mean.shape} and std {self.std.shape} must both be (n,)")
