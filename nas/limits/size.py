"""Megabytes of the deployed files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.limits.limit import MB, Forecast, Limit, Needs, Observation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SizeLimit(Limit):
    """Megabytes (1e6 bytes) of the deployed files."""

    name = "max_size_mb"
    noun = "size"
    unit = "MB"
    example = "4.5"
    help = "Limit: megabytes of the deployed files."
    sure_below = 0.9
    """Sizes follow the parameters closely."""

    @property
    def needs(self) -> Needs:
        return "files"

    @property
    def label(self) -> str:
        return f"{self.value:g}MB"

    def quantity(self, value: float) -> str:
        return f"{value:g} MB of files"

    def ratio(self, forecast: Forecast) -> NDArray[np.float64]:
        return forecast.size_mb() / self.value

    def observed(self, seen: Observation) -> float | None:
        return None if seen.size_bytes is None else seen.size_bytes / MB

    def reason(self, value: float, seen: Observation) -> str:
        return f"its files have {value:.4g} MB"
