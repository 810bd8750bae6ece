"""The baseline measured again among other networks: a factor is judged by what both take at the same time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from nas.baseline.folder import read_step, write_step
from nas.deploy.tried import TriedDeployment
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.site import Site

BESIDE = "beside.json"
"""File of a network's folder with what the baseline took beside it."""


class Beside:
    """A site that measures the baseline with whatever it measures, in the same sessions."""

    def __init__(self, site: Site, baseline: TriedDeployment, folder: Path) -> None:
        """`folder`: of the network that is measured; what the baseline took is remembered there."""
        assert baseline.path is not None
        self._site, self._folder = site, folder
        self._request = MeasureRequest(baseline.path, baseline.deployment)
        self._seen: list[float] = []

    @property
    def site(self) -> Site:
        return replace(self._site, measure=self._measure)

    @property
    def p50_ms(self) -> float | None:
        """Median latency of the baseline; None where it was not measured beside this network."""
        if self._seen:
            return median(self._seen)
        known: float | None = read_step(self._folder / BESIDE, self._identity)
        return known

    @property
    def _identity(self) -> dict[str, Any]:
        return {"file": self._request.path.name, "deployment": self._request.deployment.name}

    def _measure(self, requests: Sequence[MeasureRequest], **options: Any) -> list[Measurement]:
        if not requests:
            return []
        *found, own = self._site.measure([*requests, self._request], **options)
        if own.failed is None and options.get("sessions", 1) > 1:  # what is only shown beside counts for nothing
            self._seen.append(own.p50_ms)
            write_step(self._folder / BESIDE, self._identity, median(self._seen))
        return found
