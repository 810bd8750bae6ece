"""The common part of all ways to estimate an accuracy, and the agreement of estimates with the trained accuracies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from nas.errors import UserError
from search_spaces import Architecture

Unit = Literal["accuracy", "standard deviations"]
"""Unit of estimates: a fraction of the validation split, or standard deviations above random networks."""

LEVEL = 0.9
"""Probability of the intervals."""
_Z = 1.6449  # half the width of a normal's 90 % interval, in standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimated value of one candidate, and the cost of the estimate."""

    arch: Architecture
    value: float | None
    """Higher is better; its unit is the estimator's. None where there is no estimate."""
    std: float | None = None
    """Standard deviation in the same unit; None where nothing is known about it."""
    interval: tuple[float, float] | None = None
    """Holds the value with a probability of 90 %."""
    seconds: float
    """Seconds by the clock, for this candidate alone."""
    curve: tuple[float, ...] = ()
    """Validation accuracy after each epoch, where there were any."""
    failure: str | None = None
    """Reason why there is no estimate."""


class Estimator(Protocol):
    """A way to say which of some candidates will be the most accurate."""

    @property
    def unit(self) -> Unit:
        """Unit of its estimates' values."""
        ...

    @property
    def prepared_s(self) -> float:
        """Seconds that were spent before the first candidate, such as training a supernet."""
        ...

    def estimate(self, archs: Sequence[Architecture]) -> list[Estimate]:
        """One estimate per candidate, in their order. A candidate that fails gets a reason, not an exception."""
        ...


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of the order of estimates with the networks' accuracies once they were trained."""

    kendall_tau: float | None
    """Kendall's tau-b with the trained accuracies; None for fewer than two networks or where all are equal."""
    n: int
    """Networks that have both."""
    params_tau: float | None
    """Kendall's tau of the number of parameters, the baseline, on the same networks."""


def agreement(estimates: Sequence[float | None], trained: Sequence[float | None], params: Sequence[float]) -> Agreement:
    """Compare estimates with trained accuracies (both (n,); None or NaN where there is none) and parameters (n,).

    Raises `UserError` where the lengths differ.
    """
    if not len(estimates) == len(trained) == len(params):
        raise UserError(
            f"{len(estimates)} estimates, {len(trained)} accuracies and {len(params)} sizes do not belong together",
            "give one of each per network",
        )
    guessed, true = (np.array([np.nan if v is None else v for v in values], float) for values in (estimates, trained))
    both = np.isfinite(guessed) & np.isfinite(true)
    sizes = np.asarray(params, dtype=np.float64)[both]
    return Agreement(kendall(guessed[both], true[both]), int(both.sum()), kendall(sizes, true[both]))


def kendall(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Kendall's tau-b of (n,) and (n,); None where it is not defined."""
    from scipy.stats import kendalltau

    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(kendalltau(a, b).statistic)


def normal_interval(value: float, std: float) -> tuple[float, float]:
    """The central 90 % of a normal distribution, within what an accuracy can be."""
    return max(0.0, value - _Z * std), min(1.0, value + _Z * std)
