"""Latency over rate as one self-contained HTML page (plotly) or a PNG (Pillow)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from nas.bench.chart import is_log, shortened, ticks
from nas.loadtest.document import Document, server_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's, told apart by readers with any colour vision."""
SLO = "#444444"
HEIGHT = 520
"""Pixels."""


@dataclass(frozen=True, slots=True)
class Line:
    """One server in one scenario: points (images per second, p50 and p99 in ms), ascending."""

    server: str
    open_loop: bool
    points: tuple[tuple[float, float, float], ...]


def lines_of(document: Document) -> list[Line]:
    """What is drawn; trials whose percentiles fell to failures are left out."""
    lines = []
    for server in document["servers"]:
        name = server_text(server)
        for scenario in ("server", "closed"):
            points = sorted(
                (trial["images_per_s"], trial["latency_ms"]["p50"], trial["latency_ms"]["p99"])
                for trial in server["trials"]
                if trial["scenario"] == scenario and _known(trial["latency_ms"]["p99"]) and trial["images_per_s"]
            )
            if points:
                lines.append(Line(name, scenario == "server", tuple(points)))
    return lines


def _known(latency_ms: float | None) -> bool:
    """False for a percentile that fell to failures, in the document or as it is read back."""
    return latency_ms is not None and math.isfinite(latency_ms)


def write_load_plot(document: Document, path: Path) -> None:
    """Draw a load test; the ending of `path` says how. Writes nothing where nothing was measured."""
    lines = lines_of(document)
    if not lines:
        return
    if path.suffix.lower() == ".png":
        from nas.loadtest.png import draw

        draw(lines, document["slo_ms"], document["device"]).save(path)
        return
    config = {"responsive": True, "displaylogo": False}
    load_figure(lines, document["slo_ms"], document["device"]).write_html(path, include_plotlyjs=True, config=config)


def colour_of(lines: Sequence[Line], line: Line) -> str:
    """Each server has one colour, in both scenarios."""
    servers = list(dict.fromkeys(other.server for other in lines))
    return COLOURS[servers.index(line.server) % len(COLOURS)]


def load_figure(lines: Sequence[Line], slo_ms: float | None, caption: str) -> "go.Figure":
    """The 99th percentile as a line, the median as dots; closed loops dashed."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for line in lines:
        rates = [rate for rate, _, _ in line.points]
        colour = colour_of(lines, line)
        name = f"{escape(shortened(line.server, 48))}, {'open' if line.open_loop else 'closed'} loop"
        figure.add_scatter(
            x=rates,
            y=[p99 for _, _, p99 in line.points],
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": "solid" if line.open_loop else "dash"},
            name=f"{name}, p99",
            hovertemplate="%{x:.0f} images/s: p99 %{y:.3g} ms<extra></extra>",
        )
        figure.add_scatter(
            x=rates,
            y=[p50 for _, p50, _ in line.points],
            mode="markers",
            marker={"color": colour, "symbol": "circle-open", "size": 8},
            name=f"{name}, p50",
            hovertemplate="%{x:.0f} images/s: p50 %{y:.3g} ms<extra></extra>",
        )
    if slo_ms is not None:
        figure.add_hline(y=slo_ms, line={"color": SLO, "width": 1, "dash": "dot"}, annotation_text=f"{slo_ms:g} ms")
    values = [value for line in lines for _, p50, p99 in line.points for value in (p50, p99)]
    axis = {"title": {"text": "latency, ms"}}
    if is_log(values):
        marks = ticks(min(values) / 1.5, max(values) * 1.5)
        axis |= {"type": "log", "tickvals": marks, "ticktext": [f"{mark:g}" for mark in marks]}  # type: ignore[dict-item]
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13},
        title={"text": escape(caption), "font": {"size": 14}},
        height=HEIGHT,
        xaxis={"title": {"text": "right answers, images per second"}, "rangemode": "tozero"},
        yaxis=axis,
        margin={"l": 60, "r": 20, "t": 60, "b": 70},
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0},
    )
    return figure
