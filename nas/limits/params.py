"""Parameters of the network: exact before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.limits.limit import Forecast, Limit, Observation
from nas.text import count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ParamsLimit(Limit):
    """Number of parameters of the deployed network."""

    name = "max_params"
    noun = "number of parameters"
    unit = "count"
    example = "2M"
    help = "Limit: parameters (500k, 2M)."

    @property
    def label(self) -> str:
        return f"{count(self.value).replace(' ', '')}-params"

    def quantity(self, value: float) -> str:
        return f"{count(value)} parameters"

    def ratio(self, forecast: Forecast) -> NDArray[np.float64]:
        return forecast.costs["params"] / self.value

    def observed(self, seen: Observation) -> float | None:
        return seen.params

    def reason(self, value: float, seen: Observation) -> str:
        return f"it has {count(value)} parameters"
