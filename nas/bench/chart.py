"""Contents of a bench's plot, whatever draws it: latencies with their spread, and throughput by batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nas.bench.document import Document, is_disturbed, was_measured
from nas.deployment import name_in

COLOURS = {
    "onnxruntime-fp32": "#8c8c8c",
    "onnxruntime-int8": "#d55e00",
    "onnxruntime-int8-dynamic": "#f0e442",
    "openvino-fp32": "#56b4e9",
    "openvino-bf16": "#0072b2",
    "openvino-int8": "#009e73",
    "torch-fp32": "#e69f00",
    "torch-bf16": "#cc79a7",
}
"""Okabe and Ito's, told apart by readers with any colour vision."""
OTHER = "#444444"
LOG_FROM = 8.0
"""Largest over smallest value from which an axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One network in one deployment, at the smallest batch."""

    model: str
    deployment: str
    p50_ms: float
    low_ms: float
    """The fastest and the slowest fresh session's median."""
    high_ms: float
    disturbed: bool


@dataclass(frozen=True, slots=True)
class Throughput:
    """One network in one deployment: (images per call, images per second), by batch."""

    model: str
    deployment: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Both plots; what was not measured is left out."""

    batch: int
    """Batch of the latencies."""
    latencies: tuple[Latency, ...]
    throughputs: tuple[Throughput, ...]
    caption: str

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(entry.model for entry in self.throughputs))

    @property
    def deployments(self) -> list[str]:
        return list(dict.fromkeys(entry.deployment for entry in self.throughputs))


def chart_of(document: Document) -> Chart:
    """The plot of a bench's document."""
    batch = min(cell["batch"] for cell in document["cells"])
    order = [model["model"] for model in document["models"]]
    single = [c for c in document["cells"] if c["streams"] == 1 and was_measured(c)]
    single.sort(key=lambda cell: order.index(cell["model"]))
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for cell in single:
        lines.setdefault((cell["model"], _deployment(cell)), []).append((cell["batch"], cell["images_per_s"]))
    return Chart(
        batch=batch,
        latencies=tuple(_latency(cell) for cell in single if cell["batch"] == batch),
        throughputs=tuple(Throughput(*names, tuple(sorted(points))) for names, points in lines.items()),
        caption=f"{document['device']}, {document['threads']} threads",
    )


def colour(deployment: str) -> str:
    return COLOURS.get(deployment, OTHER)


def shortened(name: str, length: int = 32) -> str:
    """The end of a long name, which tells most."""
    return name if len(name) <= length else f"…{name[1 - length :]}"


def is_log(values: Sequence[float]) -> bool:
    """True if positive values spread so far that only a logarithmic axis shows all of them."""
    return max(values) > LOG_FROM * min(values)


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times each power of ten within [low, high], for a logarithmic axis; low > 0."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for tick in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if low <= tick <= high]


def _latency(cell: Document) -> Latency:
    sessions = cell["session_p50_ms"]
    return Latency(
        cell["model"], _deployment(cell), cell["p50_ms"], min(sessions), max(sessions), is_disturbed(cell)
    )  # fmt: skip


def _deployment(cell: Document) -> str:
    return name_in(cell)
