"""Images per second at the profiled batch, kept by the median of each fresh session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.limits.limit import Forecast, Limit, Observation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ThroughputLimit(Limit):
    """Least number of images per second, one call after the other."""

    name = "throughput"
    noun = "throughput"
    unit = "images/s"
    example = "500"
    help = "Limit: at least images per second, one call after the other (images in a call: see `nas profile --batch`)."
    at_most = False
    by_latency = True

    @property
    def label(self) -> str:
        return f"{self.value:g}ips"

    def quantity(self, value: float) -> str:
        return f"{value:g} images/s"

    def ratio(self, forecast: Forecast) -> NDArray[np.float64]:
        return forecast.upper_ms * self.value / (1e3 * forecast.batch)

    def observed(self, seen: Observation) -> float | None:
        return 1e3 * seen.batch / max(seen.medians_ms) if seen.medians_ms else None

    def reason(self, value: float, seen: Observation) -> str:
        who = "predicted to run at least" if seen.predicted else "its slowest session ran"
        return f"{who} {value:.3g} images/s"

    def call_limit_ms(self, batch: int) -> float:
        return 1e3 * batch / self.value
