"""Megabytes that loading and running the deployed network adds to a process's peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.limits.limit import MB, Forecast, Limit, Needs, Observation, wrong

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nas.errors import UserError


@dataclass(frozen=True, slots=True)
class MemoryLimit(Limit):
    """Megabytes (1e6 bytes) of memory."""

    name = "max_memory_mb"
    noun = "memory"
    unit = "MB"
    example = "64"
    help = "Limit: megabytes of memory of the deployed network."

    @property
    def needs(self) -> Needs:
        return "measurements"

    @property
    def label(self) -> str:
        return f"{self.value:g}MB-memory"

    def quantity(self, value: float) -> str:
        return f"{value:g} MB of memory"

    def ratio(self, forecast: Forecast) -> NDArray[np.float64]:
        return forecast.memory_mb() / self.value

    def observed(self, seen: Observation) -> float | None:
        return None if seen.memory_bytes is None else seen.memory_bytes / MB

    def reason(self, value: float, seen: Observation) -> str:
        return f"it took {value:.4g} MB of memory"

    def cannot_be_told(self, target: str) -> UserError:
        return wrong(
            f"memory on {target!r} can only be measured there, and it is not at hand", f"leave out {self.option}"
        )
