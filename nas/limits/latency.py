"""The time of one call, as a percentile that each fresh session keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.limits.limit import Forecast, Limit, Needs, Observation, wrong
from nas.text import milliseconds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nas.errors import UserError

LEAST_CALLS = {50: 0, 90: 100, 99: 300}
"""Percentile -> calls of a session below which it is the luck of a few: at 300, three are slower than the 99th."""
PERCENTILES = tuple(LEAST_CALLS)


@dataclass(frozen=True, slots=True)
class LatencyLimit(Limit):
    """Milliseconds of one call."""

    percentile: int = 50
    """Percentile of a session's calls that has to keep the limit."""

    name = "latency_ms"
    noun = "latency limit"
    unit = "ms"
    example = "10"
    help = "Limit: milliseconds for one call."
    by_latency = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise wrong(f"a latency limit of {self.value} ms makes no sense", "give a number above 0")
        if self.percentile not in PERCENTILES:
            raise wrong(f"--percentile {self.percentile} is not measured", "choose 50, 90 or 99")

    @property
    def tail(self) -> bool:
        """True if slow calls are limited, not the median one."""
        return self.percentile != 50

    @property
    def needs(self) -> Needs:
        return "measurements" if self.tail else "nothing"

    @property
    def label(self) -> str:
        return f"{f'p{self.percentile}-' if self.tail else ''}{self.value:g}ms"

    def quantity(self, value: float) -> str:
        return f"{value:g} ms{self._suffix}"

    def ratio(self, forecast: Forecast) -> NDArray[np.float64]:
        return forecast.upper_ms * forecast.tail / self.value

    def observed(self, seen: Observation) -> float | None:
        return max(seen.latencies_ms, default=None)

    def reason(self, value: float, seen: Observation) -> str:
        who = "predicted to take up to" if seen.predicted else "its slowest session took"
        if self.tail and not seen.predicted:
            who = "takes, by its slowest session, up to"
        text = f"{who} {milliseconds(value)} ms{self._suffix}"
        if not self.undecided(seen):
            return text
        return f"{text}, and at least {milliseconds(seen.least_ms)} ms: these calls do not tell if it keeps the limit"

    def undecided(self, seen: Observation) -> bool:
        """True if slow calls are limited, and what was measured proves neither that they keep the limit nor that they
        miss it."""
        if not self.tail or seen.predicted or seen.least_ms is None or not seen.latencies_ms:
            return False
        return seen.least_ms <= self.value < max(seen.latencies_ms)

    def call_limit_ms(self, batch: int) -> float:
        return self.value

    def cannot_be_told(self, target: str) -> UserError:
        return wrong(
            f"p{self.percentile} on {target!r} can only be measured there, and it is not at hand",
            "leave out --percentile, search on the device itself, or on a cluster (--ray) that it is part of",
        )

    def to_json(self) -> dict[str, Any]:
        return {self.name: self.value, "percentile": self.percentile}

    @property
    def _suffix(self) -> str:
        return f" (p{self.percentile})" if self.tail else ""
