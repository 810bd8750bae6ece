"""Settings of a load test, checked before anything is started."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nas.errors import UserError

CLIENTS = (20, 30, 40, 50)
"""Clients of the closed loop, where none are asked for."""
MOST_CLIENTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Settings of a load test."""

    bundles: tuple[str, ...] = ()
    """Bundles that are served here, one after the other; with `urls` the one whose answers are right."""
    urls: tuple[str, ...] = ()
    """Servers that run already."""
    clients: tuple[int, ...] = ()
    """Of the closed loop; empty: `CLIENTS`, or none where rates are asked for."""
    rates: tuple[float, ...] = ()
    """Requests per second of the open loop."""
    slo_ms: float | None = None
    """Limit on the 99th percentile; where it is given, the largest rate that keeps it is searched."""
    images: Path | None = None
    """Folder; None: the bundle's sample."""
    send: str | None = None
    """`file`, `pixels` or `floats`; None: files where they are taken."""
    replicas: tuple[int, ...] = ()
    threads: int | None = None
    batches: tuple[int, ...] = ()
    """Of the servers that are started; empty and None: what the server would choose."""
    seconds: float = 10.0
    """Counted time of one trial."""
    runs: int = 3
    """Freshly started servers, of which the middle one counts; of a server that runs already, repetitions."""
    seed: int = 0
    prices: Path | None = None
    latencies: Path | None = None
    """Where to write every single latency (parquet)."""
    command: str = "nas bench --serve"

    def __post_init__(self) -> None:
        if not self.bundles and not self.urls:
            raise UserError("there is nothing to put load on", "give bundles with --serve, or a server with --url")
        if self.urls and len(self.bundles) > 1:
            raise UserError(
                f"{len(self.bundles)} bundles cannot all say what the server at {self.urls[0]} should answer",
                "give one bundle, or none",
            )
        for name, values in (("--clients", self.clients), ("--replicas", self.replicas), ("--batch", self.batches)):
            for value in values:
                if not 1 <= value <= MOST_CLIENTS:
                    raise UserError(f"{name} {value} makes no sense", f"give whole numbers from 1 to {MOST_CLIENTS:,}")
        for rate in self.rates:
            _require_positive("--rate", rate, "requests per second")
        _require_positive("--seconds", self.seconds, "seconds")
        if self.slo_ms is not None:
            _require_positive("--slo-ms", self.slo_ms, "milliseconds")

    @property
    def clients_asked(self) -> Sequence[int]:
        return self.clients or (() if self.rates else CLIENTS)


def _require_positive(option: str, value: float, unit: str) -> None:
    if not math.isfinite(value) or value <= 0:
        raise UserError(f"{option} {value:g} makes no sense", f"give {unit} above 0")
