"""Hard limits of a search: their kinds, and the combination that was asked for.

A new kind of limit is a file beside these and a line in `KINDS`: its option, prediction, observation, violation and
words follow from its class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.limits.accuracy import AccuracyLimit
from nas.limits.latency import LEAST_CALLS, PERCENTILES, LatencyLimit
from nas.limits.limit import (
    MB,
    Forecast,
    Limit,
    Needs,
    Observation,
    Violation,
    least_latency_ms,
    session_latencies_ms,
    wrong,
)
from nas.limits.memory import MemoryLimit
from nas.limits.params import ParamsLimit
from nas.limits.size import SizeLimit
from nas.limits.throughput import ThroughputLimit

if TYPE_CHECKING:
    from nas.measure.measurement import Measurement

__all__ = [
    "KINDS",
    "LEAST_CALLS",
    "MB",
    "NAMES",
    "PERCENTILES",
    "AccuracyLimit",
    "Forecast",
    "LatencyLimit",
    "Limit",
    "Limits",
    "Needs",
    "Observation",
    "Violation",
    "least_latency_ms",
    "session_latencies_ms",
]

KINDS: tuple[type[Limit], ...] = (LatencyLimit, ThroughputLimit, ParamsLimit, SizeLimit, MemoryLimit, AccuracyLimit)
"""Every kind of limit, in the order in which they are named. Each is checked again on the finished file."""

NAMES = (*(kind.name for kind in KINDS), "percentile")
"""Arguments of `Limits.of`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The hard limits of a search, in any combination; at most one of each kind, in the order of `KINDS`."""

    all: tuple[Limit, ...] = ()

    @classmethod
    def of(cls, *, percentile: int | None = None, metric: str = "accuracy", **values: float | None) -> Limits:
        """Limits by the names of `KINDS`; None: no such limit.

        Args:
            percentile: of a session's calls, the one that has to keep `latency_ms`; None: the median.
            metric: name of the accuracy's metric (`Task.metric`).
            values: by `Limit.name`.

        Raises:
            UserError: an impossible value, or a percentile without a latency.
            TypeError: a name that is no kind of limit.
        """
        unknown = values.keys() - {kind.name for kind in KINDS}
        if unknown:
            raise TypeError(f"no such limit: {', '.join(sorted(unknown))}")
        more: dict[str, dict[str, Any]] = {
            LatencyLimit.name: {} if percentile is None else {"percentile": percentile},
            AccuracyLimit.name: {"metric": metric},
        }
        given = [(kind, value) for kind in KINDS if (value := values.get(kind.name)) is not None]
        if percentile is not None and percentile not in PERCENTILES:
            raise wrong(f"--percentile {percentile} is not measured", "choose 50, 90 or 99")
        if percentile not in (None, 50) and values.get(LatencyLimit.name) is None:
            raise wrong(
                f"--percentile {percentile} says which calls keep --latency-ms, and there is none",
                "give --latency-ms too, or leave out --percentile",
            )
        return cls(tuple(kind(value, **more.get(kind.name, {})) for kind, value in given))

    def __iter__(self) -> Iterator[Limit]:
        return iter(self.all)

    def __contains__(self, name: object) -> bool:
        return any(limit.name == name for limit in self.all)

    def __getitem__(self, name: str) -> Limit:
        """The limit of that name; raises `KeyError` where it was not given."""
        for limit in self.all:
            if limit.name == name:
                return limit
        raise KeyError(name)

    def changed(self, **arguments: Any) -> Limits:
        """These limits with some of them added, changed or (None) left out; arguments as in `of`."""
        metric = next((limit.metric for limit in self.all if isinstance(limit, AccuracyLimit)), "accuracy")
        return Limits.of(**{"metric": metric, **self.to_json(), **arguments})

    @property
    def latency(self) -> LatencyLimit | None:
        """The limit on one call, where it was given."""
        return next((limit for limit in self.all if isinstance(limit, LatencyLimit)), None)

    @property
    def percentile(self) -> int:
        """Percentile of a session's calls that has to keep the latency; 50 without such a limit."""
        return 50 if self.latency is None else self.latency.percentile

    @property
    def limits_tail(self) -> bool:
        """True if the latency of slow calls is limited, not that of the median one."""
        return self.percentile != 50

    @property
    def given(self) -> dict[str, float]:
        """The values by name."""
        return {limit.name: limit.value for limit in self.all}

    @property
    def predicted(self) -> tuple[Limit, ...]:
        """Those that are known of every candidate before training."""
        return tuple(limit for limit in self.all if limit.before_training)

    @property
    def needs_probes(self) -> bool:
        """True if networks have to be prepared, if not measured, before these limits can be predicted."""
        return any(limit.needs != "nothing" for limit in self.all)

    @property
    def needs_measured_probes(self) -> bool:
        """True if networks have to be measured before these limits can be predicted: files need only be made."""
        return any(limit.needs == "measurements" for limit in self.all)

    def call_limit_ms(self, batch: int) -> float:
        """Milliseconds that the median call may take at most, by all limits; inf where none says anything of it."""
        return min((limit.call_limit_ms(batch) for limit in self.all), default=math.inf)

    @property
    def label(self) -> str:
        """Short, for names of folders: `10ms`, `p99-10ms-2M-params`."""
        return "-".join(limit.label for limit in self.all)

    @property
    def text(self) -> str:
        """The limits for people: `at most 10 ms (p99), at most 2 M parameters`; empty without limits."""
        return ", ".join(limit.text for limit in self.all)

    @property
    def asked(self) -> str:
        """`text` as the object of a sentence: a latency alone without its `at most`."""
        return self.text.removeprefix("at most ") if tuple(self.given) == (LatencyLimit.name,) else self.text

    def violations(self, seen: Observation) -> list[Violation]:
        """The limits that are not kept by an observation."""
        return [found for limit in self.all if (found := limit.violation(seen)) is not None]

    def observe(self, known: Observation, measurement: Measurement | None) -> Observation:
        """`known` with the facts that a measurement adds, at the percentile that is limited."""
        return known.measured(measurement, self.percentile)

    @property
    def least_calls(self) -> int:
        """Calls that a session needs at least before it tells of the limited percentile; 0: any number."""
        return LEAST_CALLS[self.percentile]

    def undecided(self, measurement: Measurement) -> bool:
        """True if a measurement proves neither that slow calls keep their limit nor that they miss it."""
        seen = self.observe(Observation(), measurement)
        return any(isinstance(limit, LatencyLimit) and limit.undecided(seen) for limit in self.all)

    def worst_ms(self, measurement: Measurement) -> float:
        """The slowest session, at the percentile that has to keep a latency."""
        return max(session_latencies_ms(measurement, self.percentile))

    def judged_ms(self, measurement: Measurement | None) -> float | None:
        """What a limit on latency is compared with, as `worst_ms`; None where nothing was measured."""
        return None if measurement is None or measurement.failed is not None else self.worst_ms(measurement)

    def margin_pct(self, seen: Observation) -> float | None:
        """Distance to the nearest limit on latency or throughput, in per cent of the time that it leaves for a call;
        below 0 where it is missed. None without such a limit, or where nothing is known."""
        used = [ratio for limit in self.all if limit.by_latency and (ratio := limit.used(seen)) is not None]
        return 100 * (1 - max(used)) if used else None

    def to_json(self) -> dict[str, Any]:
        """The arguments of `of` that make these limits, without the metric."""
        return {name: value for limit in self.all for name, value in limit.to_json().items()}
