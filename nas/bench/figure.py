"""A bench's plot as one self-contained HTML page (plotly) or as a PNG (Pillow)."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.bench.chart import Chart, chart_of, colour, is_log, shortened, ticks
from nas.bench.document import Document
from nas.errors import UserError
from nas.files.folders import check_writable

if TYPE_CHECKING:
    import plotly.graph_objects as go

PANELS_PER_ROW = 2
PANEL_HEIGHT = 260
"""Pixels, of a row of throughput panels."""
ROW_HEIGHT = 22
"""Pixels per network and deployment."""
FORMATS = (".html", ".png")


def check_plot_path(path: Path) -> None:
    """Raises `UserError` where nothing could be written to `path`: before hours of measuring, not after."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"cannot draw '{path}'", "name a file that ends in .html or .png")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"'{path}' cannot be written: no such folder, or a folder itself", "name a file to write")
    check_writable(path.parent)


def write_plot(document: Document, path: Path) -> None:
    """Draw the document of a bench; the ending of `path` says how. Writes nothing where nothing was measured."""
    chart = chart_of(document)
    if not chart.latencies:
        return
    if path.suffix.lower() == ".png":
        from nas.bench.png import draw

        draw(chart).save(path)
        return
    config = {"responsive": True, "displaylogo": False}
    bench_figure(chart).write_html(path, include_plotlyjs=True, config=config)


def bench_figure(chart: Chart) -> "go.Figure":
    """Latencies on top, below them a throughput panel per network."""
    from plotly.subplots import make_subplots

    models = chart.models
    columns = min(PANELS_PER_ROW, len(models))
    rows = -(-len(models) // columns)
    top = 40 + ROW_HEIGHT * len(chart.latencies)
    specs: list[list[Any]] = [[{"colspan": columns}, *[None] * (columns - 1)], *[[{}] * columns for _ in range(rows)]]
    height = top + rows * PANEL_HEIGHT + 190
    figure = make_subplots(
        rows=1 + rows,
        cols=columns,
        specs=specs,
        row_heights=[top, *[PANEL_HEIGHT] * rows],
        vertical_spacing=75 / height,
        horizontal_spacing=0.07,
        subplot_titles=[
            f"Latency at batch {chart.batch}, ms per call (bar: fastest to slowest fresh session; hollow: disturbed)",
            *(f"{escape(shortened(model))}: images/s by batch" for model in models),
        ],
    )
    _add_latencies(figure, chart)
    for i, model in enumerate(models):
        _add_throughput(figure, chart, model, 2 + i // columns, 1 + i % columns)
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13},
        title={"text": escape(chart.caption), "font": {"size": 14}},
        height=height,
        annotations=[{**annotation.to_plotly_json(), "font": {"size": 13}} for annotation in figure.layout.annotations],
        margin={"l": 60, "r": 20, "t": 80, "b": 70},
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0},
    )
    return figure


def _add_latencies(figure: "go.Figure", chart: Chart) -> None:
    for deployment in chart.deployments:
        rows = [row for row in chart.latencies if row.deployment == deployment]
        if not rows:
            continue
        figure.add_scatter(
            x=[row.p50_ms for row in rows],
            y=[[escape(row.model) for row in rows], [row.deployment for row in rows]],
            error_x={
                "type": "data",
                "array": [row.high_ms - row.p50_ms for row in rows],
                "arrayminus": [row.p50_ms - row.low_ms for row in rows],
            },
            mode="markers",
            # A disturbed measurement is drawn hollow.
            marker={
                "color": colour(deployment),
                "size": 9,
                "symbol": ["circle-open" if row.disturbed else "circle" for row in rows],
            },
            name=deployment,
            legendgroup=deployment,
            showlegend=False,
            hovertemplate="%{x:.3g} ms<extra>%{y}</extra>",
            row=1,
            col=1,
        )
    lows, highs = [row.low_ms for row in chart.latencies], [row.high_ms for row in chart.latencies]
    figure.update_xaxes(**_axis(min(lows), max(highs), log=is_log([*lows, *highs])), row=1, col=1)
    figure.update_yaxes(autorange="reversed", automargin=True, row=1, col=1)


def _add_throughput(figure: "go.Figure", chart: Chart, model: str, row: int, column: int) -> None:
    lines = [line for line in chart.throughputs if line.model == model]
    # Each deployment is in the legend once: where its first line is drawn.
    known = {trace.name for trace in figure.data if trace.mode == "lines+markers"}
    for line in lines:
        figure.add_scatter(
            x=[batch for batch, _ in line.points],
            y=[images for _, images in line.points],
            mode="lines+markers",
            line={"color": colour(line.deployment), "width": 2},
            name=line.deployment,
            legendgroup=line.deployment,
            showlegend=line.deployment not in known,
            hovertemplate="batch %{x}: %{y:.0f} images/s<extra>" + line.deployment + "</extra>",
            row=row,
            col=column,
        )
    batches = sorted({batch for line in lines for batch, _ in line.points})
    figure.update_xaxes(type="log", tickvals=batches, ticktext=[str(b) for b in batches], row=row, col=column)
    figure.update_yaxes(rangemode="tozero", row=row, col=column)


def _axis(low: float, high: float, *, log: bool) -> dict[str, Any]:
    if not log:
        return {"range": [0, 1.08 * high]}
    import math

    marks = ticks(low / 1.5, high * 1.5)
    return {
        "type": "log",
        "range": [math.log10(low / 1.2), math.log10(high * 1.2)],
        "tickvals": marks,
        "ticktext": [f"{mark:g}" for mark in marks],
    }
