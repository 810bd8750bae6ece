"""What a network has to keep: the limits there are, what is known before training, and how they are judged."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from nas.errors import UserError
from nas.measure.measurement import Measurement
from nas.text import count, milliseconds

MB = 1e6
"""Bytes."""
PERCENTILES = (50, 90, 99)

Known = Literal["predicted", "measured"]


@dataclass(frozen=True, slots=True)
class LimitKind:
    """What one limit is about."""

    option: str
    known: Known
    """`predicted`: of every candidate, before anything is trained; `measured`: of finished files alone."""
    at_most: bool = True
    """False: at least."""


LIMIT_KINDS: Mapping[str, LimitKind] = {
    "latency_ms": LimitKind("--latency-ms", "predicted"),
    "throughput": LimitKind("--throughput", "predicted", at_most=False),
    "max_params": LimitKind("--max-params", "predicted"),
    "max_size_mb": LimitKind("--max-size-mb", "predicted"),
    "max_memory_mb": LimitKind("--max-memory-mb", "predicted"),
    "min_accuracy": LimitKind("--min-accuracy", "measured", at_most=False),
}
"""Every limit, also a predicted one, is checked again on the finished file; parameters are exact from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The hard limits of a search, in any combination; None: no such limit."""

    latency_ms: float | None = None
    """Of one call, kept by each fresh session."""
    percentile: int = 50
    """Of a session's calls: the one that has to keep `latency_ms`."""
    throughput: float | None = None
    """Images per second at the profiled batch, kept by the median of each fresh session."""
    max_params: float | None = None
    max_size_mb: float | None = None
    """Megabytes (1e6 bytes) of the deployed files."""
    max_memory_mb: float | None = None
    """Megabytes that loading and running the deployed network adds to a process's peak."""
    min_accuracy: float | None = None
    """Fraction, by the deployed file on the validation split."""
    metric: str = "accuracy"
    """What the fraction is called (`Task.metric`)."""

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            if not (math.isfinite(value) and value > 0):
                what = "a latency limit" if name == "latency_ms" else LIMIT_KINDS[name].option
                unit = " ms" if name == "latency_ms" else ""
                raise UserError(f"{what} of {value}{unit} makes no sense", "give a number above 0")
        if self.min_accuracy is not None and self.min_accuracy > 1:
            raise UserError(f"{100 * self.min_accuracy:g} % {self.metric} makes no sense", "give at most 100")
        if self.percentile not in PERCENTILES:
            raise UserError(f"--percentile {self.percentile} is not measured", "choose 50, 90 or 99")

    @property
    def given(self) -> dict[str, float]:
        """The limits that were given, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name in LIMIT_KINDS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def predicted(self) -> tuple[str, ...]:
        """Those of the given ones that are known of every candidate before training."""
        return tuple(name for name in self.given if LIMIT_KINDS[name].known == "predicted")

    @property
    def needs_probes(self) -> bool:
        """Whether networks have to be prepared, if not measured, before these limits can be predicted."""
        return self.max_size_mb is not None or self.needs_measured_probes

    @property
    def needs_measured_probes(self) -> bool:
        """Whether networks have to be measured before these limits can be predicted: files need only be made."""
        return self.limits_tail or self.max_memory_mb is not None

    @property
    def limits_tail(self) -> bool:
        """Whether the latency of slow calls is limited, not that of the median one."""
        return self.latency_ms is not None and self.percentile != 50

    def call_limit_ms(self, batch: int) -> float:
        """What the median call may take at most, by the latency and the throughput; inf without either."""
        return min(self.latency_ms or math.inf, math.inf if self.throughput is None else 1e3 * batch / self.throughput)

    @property
    def label(self) -> str:
        """Short, for names of folders: `10ms`, `p99-10ms-2M-params`."""
        tail = f"p{self.percentile}-" if self.percentile != 50 else ""
        texts = {
            "latency_ms": lambda v: f"{tail}{v:g}ms",
            "throughput": lambda v: f"{v:g}ips",
            "max_params": lambda v: f"{count(v).replace(' ', '')}-params",
            "max_size_mb": lambda v: f"{v:g}MB",
            "max_memory_mb": lambda v: f"{v:g}MB-memory",
            "min_accuracy": lambda v: f"{100 * v:g}pct",
        }
        return "-".join(texts[name](value) for name, value in self.given.items())

    @property
    def text(self) -> str:
        """For people: `at most 10 ms (p99), at most 2 M parameters`; empty without limits."""
        return ", ".join(self.say(name, value) for name, value in self.given.items())

    def say(self, name: str, value: float) -> str:
        """One limit as words, at this value."""
        bound = "at most" if LIMIT_KINDS[name].at_most else "at least"
        return f"{bound} {self.quantity(name, value)}"

    def quantity(self, name: str, value: float) -> str:
        """A value of a limit's kind, with its unit."""
        tail = f" (p{self.percentile})" if self.percentile != 50 else ""
        texts = {
            "latency_ms": f"{value:g} ms{tail}",
            "throughput": f"{value:g} images/s",
            "max_params": f"{count(value)} parameters",
            "max_size_mb": f"{value:g} MB of files",
            "max_memory_mb": f"{value:g} MB of memory",
            "min_accuracy": f"{100 * value:g} % {self.metric}",
        }
        return texts[name]

    def to_json(self) -> dict[str, Any]:
        """The given ones, and the percentile where a latency is among them."""
        tail = {"percentile": self.percentile} if self.latency_ms is not None else {}
        return {**self.given, **tail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of one network in one deployment; empty or None: nothing, and then nothing is objected."""

    latencies_ms: tuple[float, ...] = ()
    """Of each fresh session, at the limits' percentile."""
    medians_ms: tuple[float, ...] = ()
    batch: int = 1
    params: int | None = None
    size_bytes: int | None = None
    memory_bytes: int | None = None
    accuracy: float | None = None
    predicted: bool = False
    """The latencies are upper bounds of a prediction, not measured."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A limit that was not kept."""

    name: str
    value: float
    """In the limit's unit."""
    reason: str


def broken(limits: Limits, seen: Seen) -> list[Broken]:
    """The limits that are not kept by what was seen."""
    found = []
    tail = f" (p{limits.percentile})" if limits.percentile != 50 else ""
    if limits.latency_ms is not None and seen.latencies_ms and not max(seen.latencies_ms) <= limits.latency_ms:
        value = max(seen.latencies_ms)
        who = "predicted to take up to" if seen.predicted else "its slowest session took"
        found.append(Broken("latency_ms", value, f"{who} {milliseconds(value)} ms{tail}"))
    if limits.throughput is not None and seen.medians_ms:
        value = 1e3 * seen.batch / max(seen.medians_ms)
        if not value >= limits.throughput:
            who = "predicted to run at least" if seen.predicted else "its slowest session ran"
            found.append(Broken("throughput", value, f"{who} {value:.3g} images/s"))
    at_most = (
        ("max_params", limits.max_params, seen.params, 1.0, "it has {} parameters"),
        ("max_size_mb", limits.max_size_mb, seen.size_bytes, MB, "its files have {} MB"),
        ("max_memory_mb", limits.max_memory_mb, seen.memory_bytes, MB, "it took {} MB of memory"),
    )
    for name, limit, raw, unit, words in at_most:
        if limit is not None and raw is not None and raw / unit > limit:
            value = raw / unit
            found.append(Broken(name, value, words.format(count(value) if unit == 1.0 else f"{value:.4g}")))
    if limits.min_accuracy is not None and seen.accuracy is not None and seen.accuracy < limits.min_accuracy:
        reason = f"{limits.metric} {seen.accuracy:.1%} is below {limits.min_accuracy:.1%}"
        found.append(Broken("min_accuracy", seen.accuracy, reason))
    return found


def session_latencies_ms(measurement: Measurement, percentile: int) -> tuple[float, ...]:
    """The percentile of each fresh session; empty where the network could not be measured."""
    if measurement.failed is not None:
        return ()
    return tuple(float(getattr(session, f"p{percentile}_ms")) for session in measurement.sessions)


def seen_in(known: Seen, measurement: Measurement | None, limits: Limits) -> Seen:
    """`known` with what a measurement adds to it."""
    if measurement is None or measurement.failed is not None:
        return known
    return replace(
        known,
        latencies_ms=session_latencies_ms(measurement, limits.percentile),
        medians_ms=session_latencies_ms(measurement, 50),
        memory_bytes=measurement.memory_bytes,
    )


def worst_ms(measurement: Measurement, limits: Limits) -> float:
    """The slowest session, at the percentile that has to keep a latency."""
    percentile = limits.percentile if limits.latency_ms is not None else 50
    return max(session_latencies_ms(measurement, percentile))
