"""One hard limit: its words, its prediction before training, and what keeping it means for a finished file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nas.errors import UserError
    from nas.measure.measurement import Measurement

MB = 1e6
"""Bytes."""

Needs = Literal["nothing", "files", "measurements"]


class Forecast(Protocol):
    """Predictions for n candidates in one deployment; arrays are (n,)."""

    @property
    def batch(self) -> int:
        """Images in a call."""

    @property
    def upper_ms(self) -> NDArray[np.float64]:
        """Upper end of the 90 % interval of the median call, ms."""

    @property
    def tail(self) -> float:
        """The limited percentile of a call over its median."""

    @property
    def costs(self) -> Mapping[str, NDArray[np.float64]]:
        """Exact costs by name, `params` among them."""

    def size_mb(self) -> NDArray[np.float64]:
        """Megabytes of the deployed files."""

    def memory_mb(self) -> NDArray[np.float64]:
        """Megabytes of memory, at the upper end of the 90 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Facts about one network in one deployment; empty or None: not known, and then no limit counts as violated."""

    latencies_ms: tuple[float, ...] = ()
    """Latency of each fresh session, at the limits' percentile; of slow calls what they take at most."""
    least_ms: float | None = None
    """What such a call takes at least, by every session; None where they do not tell."""
    medians_ms: tuple[float, ...] = ()
    batch: int = 1
    params: int | None = None
    size_bytes: int | None = None
    memory_bytes: int | None = None
    accuracy: float | None = None
    predicted: bool = False
    """The latencies are upper bounds of a prediction, not measured."""

    def measured(self, measurement: Measurement | None, percentile: int) -> Observation:
        """This observation with the facts that a measurement adds; unchanged where there is none or it failed."""
        if measurement is None or measurement.failed is not None:
            return self
        return replace(
            self,
            latencies_ms=session_latencies_ms(measurement, percentile),
            least_ms=least_latency_ms(measurement, percentile),
            medians_ms=session_latencies_ms(measurement, 50),
            memory_bytes=measurement.memory_bytes,
        )

    def slowed(self, factor: float) -> Observation:
        """This observation had every call taken `factor` times as long."""
        return replace(
            self,
            latencies_ms=tuple(factor * ms for ms in self.latencies_ms),
            least_ms=None if self.least_ms is None else factor * self.least_ms,
            medians_ms=tuple(factor * ms for ms in self.medians_ms),
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that was not kept."""

    name: str
    value: float
    """The observed value, in the limit's unit."""
    reason: str


@dataclass(frozen=True, slots=True)
class Limit(ABC):
    """A hard limit at its value. A new kind is a subclass in a file of its own and a line in `KINDS`."""

    value: float
    """Finite and above 0, in the unit of `unit`."""

    name: ClassVar[str]
    """Key in results and argument of `Limits.of`; the option is made of it."""
    noun: ClassVar[str]
    """The limited quantity in a sentence about a wrong value."""
    unit: ClassVar[str]
    """Unit of the option's value; `%` for a percentage that is kept as a fraction."""
    example: ClassVar[str]
    """A possible value, as typed."""
    help: ClassVar[str]
    """The option's help."""
    at_most: ClassVar[bool] = True
    """False: at least."""
    before_training: ClassVar[bool] = True
    """True if every candidate's value is known or predicted before anything is trained."""
    by_latency: ClassVar[bool] = False
    """True if its prediction is proportional to the predicted latency."""
    sure_below: ClassVar[float | None] = None
    """Candidates predicted beyond this part of the limit are checked on files before they are trained; None: the
    prediction is exact, or checked by latency."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise wrong(f"{self.option} of {self.value} makes no sense", "give a number above 0")

    @property
    def option(self) -> str:
        """The option of `nas search` that sets it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def needs(self) -> Needs:
        """Facts about a few networks of the space that its prediction needs: none, their files, or measurements."""
        return "nothing"

    @property
    def label(self) -> str:
        """Short, for names of folders."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The limit for people: `at most 10 ms`."""
        return f"{'at most' if self.at_most else 'at least'} {self.quantity(self.value)}"

    @abstractmethod
    def quantity(self, value: float) -> str:
        """A value of this kind with its unit, for people."""

    def ratio(self, forecast: Forecast) -> NDArray[np.float64]:
        """(n,) predicted value over the limit (limit over value where it is `at least`); up to 1 keeps it.

        Raises `NotImplementedError` for limits that are not known before training.
        """
        raise NotImplementedError(f"{self.name} is not known before training")

    @abstractmethod
    def observed(self, seen: Observation) -> float | None:
        """The observed value in the limit's unit; None where it is not known."""

    @abstractmethod
    def reason(self, value: float, seen: Observation) -> str:
        """A sentence's part that tells of a violation with this value."""

    def violation(self, seen: Observation) -> Violation | None:
        """The observation's violation of the limit; None where it keeps it or does not tell."""
        value = self.observed(seen)
        if value is None or (value <= self.value if self.at_most else value >= self.value):
            return None
        return Violation(self.name, value, self.reason(value, seen))

    def used(self, seen: Observation) -> float | None:
        """The observed value over the limit (limit over value where it is `at least`); up to 1 keeps it. None where it
        is not known."""
        value = self.observed(seen)
        if value is None or self.at_most:
            return None if value is None else value / self.value
        return self.value / value if value else math.inf

    def call_limit_ms(self, batch: int) -> float:
        """Milliseconds that the median call may take at most by this limit; inf where it says nothing of it."""
        return math.inf

    def at_ratio(self, ratio: float) -> float:
        """The limit that a network at `ratio` of the present one keeps."""
        return self.value * ratio if self.at_most else self.value / ratio

    def with_value(self, value: float) -> Self:
        """The same limit at another value."""
        return replace(self, value=value)

    def cannot_be_told(self, target: str) -> UserError:
        """The error for a target that is not at hand, where the prediction `needs` measurements."""
        raise NotImplementedError(f"{self.name} needs no measurements")

    def to_json(self) -> dict[str, Any]:
        """The arguments of `Limits.of` that make it."""
        return {self.name: self.value}


def session_latencies_ms(measurement: Measurement, percentile: int) -> tuple[float, ...]:
    """What each fresh session says of the percentile (`session_latency_ms`); empty where the network could not be
    measured."""
    if measurement.failed is not None:
        return ()
    from nas.measure.measurement import session_latency_ms

    return tuple(session_latency_ms(session, percentile) for session in measurement.sessions)


def least_latency_ms(measurement: Measurement, percentile: int) -> float | None:
    """What a call at the percentile takes at least, by every fresh session (`session_least_ms`); None where one of them
    does not tell."""
    from nas.measure.measurement import session_least_ms

    least = [session_least_ms(session, percentile) for session in measurement.sessions]
    known = [ms for ms in least if ms is not None]
    return min(known) if known and len(known) == len(least) else None


def wrong(message: str, hint: str) -> UserError:
    """A `UserError`; its module is imported here, because it brings numpy and the options of a command are light."""
    from nas.errors import UserError

    return UserError(message, hint)
