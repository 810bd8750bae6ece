"""Accuracy against latency: every candidate, the limit, the front, the winners and the baselines."""

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from nas.report.document import Document, metric, objective, p50_ms, validation_accuracy
from nas.text import milliseconds, percent, worth

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MAX_POINTS = 4000
"""Candidates drawn at most; of the merely scored ones an even sample is kept, all others always."""

PLOT_HEIGHT = 580
"""Pixels, with the legend."""

# Okabe and Ito's colours, told apart by readers with any colour vision, on light and dark ground.
ORIGINS = {
    "search": ("proposed by the search", "#3a8fd0"),
    "random": ("random", "#8c8c8c"),
    "anchor": ("known design", "#cc79a7"),
}
LIMIT, FRONT, WINNER, BASELINE = "#d55e00", "#009e73", "#d55e00", "#e69f00"


def accuracy_latency_figure(document: Document, candidates: "pd.DataFrame") -> "go.Figure":
    """The plot, without colours of its own for text and grid: the page's style sheet gives them."""
    import plotly.graph_objects as go

    figure = go.Figure()
    scale = scale_of(document)
    shown = candidate_rows(candidates, scale.column)
    for origin, (label, colour) in ORIGINS.items():
        _add_candidates(figure, shown[shown["origin"] == origin], label, colour, scale)
    front = candidates[candidates["pareto"] & candidates[scale.column].notna()]
    front = front.sort_values("predicted_latency_ms")
    if len(front) > 1:
        figure.add_scatter(
            x=front["predicted_latency_ms"],
            y=scale.factor * front[scale.column],
            yaxis=scale.axis,
            mode="lines",
            line={"color": FRONT, "width": 2, "shape": "hv"},
            name="Pareto front of the estimates",
            hoverinfo="skip",
        )
    baselines, winners = _drawn(document["baselines"]), _drawn(document["best"])
    _add_results(figure, baselines, "baseline", BASELINE, "diamond", 0)
    _add_results(figure, winners, "winner", WINNER, "star", len(baselines))
    _add_front(figure, document)
    _lay_out(figure, document["limit_ms"], metric(document))
    if scale.axis != "y":
        title = {"text": "zero-cost score, standard deviations"}
        figure.update_layout(yaxis2={"title": title, "overlaying": "y", "side": "right", "showgrid": False,
                                     "zeroline": False, "automargin": True})  # fmt: skip
    return figure


@dataclass(frozen=True, slots=True)
class Scale:
    """The vertical axis of the candidates."""

    column: str
    """Column of the table of candidates."""
    factor: float
    axis: str
    """Plotly's name of it."""


def scale_of(document: Document) -> Scale:
    """Accuracies in per cent, or scores on an axis of their own where estimates are no accuracies."""
    unit = document["estimator"]["unit"]
    return Scale("accuracy_estimate", 100.0, "y") if unit == "accuracy" else Scale("estimate", 1.0, "y2")


def visible_candidates(candidates: "pd.DataFrame", column: str = "accuracy_estimate") -> "pd.DataFrame":
    """The candidates to draw (those with a value in `column`), thinned evenly along the latency axis to about
    `MAX_POINTS` rows."""
    drawable = candidates[candidates[column].notna() & candidates["predicted_latency_ms"].notna()]
    important = drawable["pareto"] | (drawable["state"] == "evaluated")
    rest = drawable[~important].sort_values("predicted_latency_ms")
    step = max(1, -(-len(rest) // MAX_POINTS))
    import pandas as pd

    # The important ones last, so that they lie on top.
    return pd.concat([rest.iloc[::step], drawable[important]])


def candidate_rows(candidates: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """The candidates as they are drawn, numbered from 0: the `customdata` of their points."""
    return visible_candidates(candidates, column).reset_index(drop=True)


def drawn_results(document: Document) -> list[Document]:
    """The trained networks that are drawn: the point of number k has -1 - k as `customdata`."""
    return [*_drawn(document["baselines"]), *_drawn(document["best"])]


def _drawn(results: list[Document]) -> list[Document]:
    return [r for r in results if validation_accuracy(r) is not None and p50_ms(r) is not None]


def _add_candidates(figure: "go.Figure", rows: "pd.DataFrame", label: str, colour: str, scale: Scale) -> None:
    if rows.empty:
        return
    evaluated = (rows["state"] == "evaluated").to_numpy()
    columns = ("key", "deployment", "input", "state", "predicted_latency_ms", scale.column)
    unit = "accuracy" if scale.axis == "y" else "standard deviations"
    hover = [
        f"{escape(str(key))}<br>{escape(str(deployment))}, {escape(str(entry))}, {state}"
        f"<br>predicted {milliseconds(latency_ms)} ms, estimated {worth(estimate, unit)}"
        for key, deployment, entry, state, latency_ms, estimate in zip(*(rows[c] for c in columns), strict=True)
    ]
    figure.add_scatter(
        x=rows["predicted_latency_ms"].to_list(),  # lists, which scripts of the page can read; columns become base64
        y=(scale.factor * rows[scale.column]).to_list(),
        yaxis=scale.axis,
        mode="markers",
        marker={
            "color": colour,
            "size": [9 if e else 5 for e in evaluated],
            "opacity": [0.95 if e else 0.45 for e in evaluated],
            "line": {"width": 0},
        },
        name=label,
        text=hover,
        hoverinfo="text",
        customdata=rows.index.to_list(),
    )


def _add_results(figure: "go.Figure", drawn: list[Document], kind: str, colour: str, symbol: str, first: int) -> None:
    """Trained networks, at their measured latency and the accuracy of the deployed file.

    `first`: number of the first of them.
    """
    if not drawn:
        return
    names = [escape(str(r.get("name") or f"winner {r['rank']}")) for r in drawn]
    figure.add_scatter(
        x=[p50_ms(r) for r in drawn],
        y=[100 * (validation_accuracy(r) or 0.0) for r in drawn],
        mode="markers+text",
        marker={
            "color": colour,
            "symbol": symbol,
            "size": 18 if symbol == "star" else 11,
            "line": {"width": 1, "color": "#222"},
        },
        text=names,
        textposition="top center",
        name=f"{kind}s, trained and measured",
        hovertext=[_result_hover(name, r) for name, r in zip(names, drawn, strict=True)],
        hoverinfo="text",
        customdata=[-1 - number for number in range(first, first + len(drawn))],
    )


def _result_hover(name: str, result: Document) -> str:
    how = "measured" if result["measured_latency_ms"] else "predicted"
    return (
        f"{name}<br>{escape(str(result['runtime']))} {escape(str(result['precision']))}, {escape(result['input'])}"
        f"<br>{how} {milliseconds(p50_ms(result))} ms, {percent(validation_accuracy(result))}"
    )


def _add_front(figure: "go.Figure", document: Document) -> None:
    """The delivered front, where one was asked for: a line through the winners."""
    best = [b for b in document["best"] if validation_accuracy(b) is not None and p50_ms(b) is not None]
    if objective(document) != "pareto" or len(best) < 2:
        return
    best = sorted(best, key=lambda b: p50_ms(b) or 0.0)
    figure.add_scatter(
        x=[p50_ms(b) for b in best],
        y=[100 * (validation_accuracy(b) or 0.0) for b in best],
        mode="lines",
        line={"color": WINNER, "width": 2, "shape": "hv"},
        name="delivered front",
        hoverinfo="skip",
    )


def _lay_out(figure: "go.Figure", limit_ms: float | None, name: str) -> None:
    """`name`: of the metric."""
    latencies = [float(x) for trace in figure.data for x in trace.x] + ([] if limit_ms is None else [limit_ms])
    low, high = min(latencies), max(latencies)
    ticks = _ticks(low / 1.5, high * 1.5)
    log = high > 8 * low
    left = low / 1.3 if log else 0.0
    axis: dict[str, Any] = {"title": {"text": "latency, ms per image"}, "zeroline": False, "automargin": True}
    if log:
        axis |= {
            "type": "log",
            "range": [math.log10(left), math.log10(high * 1.2)],
            "tickvals": ticks,
            "ticktext": [f"{tick:g}" for tick in ticks],
        }
    else:
        axis |= {"range": [0, high * 1.08]}
    if limit_ms is not None:
        _add_limit(figure, limit_ms, left, log=log)
    clear = "rgba(0,0,0,0)"
    figure.update_layout(
        template="none",
        paper_bgcolor=clear,
        plot_bgcolor=clear,
        font={"family": "system-ui, sans-serif", "size": 13},
        margin={"l": 56, "r": 12, "t": 40, "b": 56},
        height=PLOT_HEIGHT,
        xaxis=axis,
        yaxis={"title": {"text": f"validation {name}, %"}, "zeroline": False, "automargin": True},
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0, "itemsizing": "constant"},
        modebar={"bgcolor": clear},
        hoverlabel={"bgcolor": "#1f2933", "font": {"color": "#ffffff"}, "align": "left"},
    )


def _add_limit(figure: "go.Figure", limit_ms: float, left: float, *, log: bool) -> None:
    figure.add_vrect(x0=left, x1=limit_ms, fillcolor=FRONT, opacity=0.07, line_width=0, layer="below")
    figure.add_vline(x=limit_ms, line={"color": LIMIT, "width": 2, "dash": "dash"})
    figure.add_annotation(
        text=f"limit {milliseconds(limit_ms)} ms",
        x=math.log10(limit_ms) if log else limit_ms,
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
    )


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times each power of ten between `low` and `high`, written out in full: plotly shows only digits."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for tick in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if low <= tick <= high]
