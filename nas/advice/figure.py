"""An advice as a picture: for each block a bar of its share of the time, beside one of its share of the MACs."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.bench.chart import shortened
from nas.deployment import name_in
from nas.text import milliseconds, percent

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from PIL import Image

TIME, MACS = "#0072b2", "#e69f00"
"""Okabe and Ito's, told apart by readers with any colour vision."""
ROW, BAR, LABELS = 34, 12, 250
"""Units of length: of a block's row, of a bar, and of the blocks' names."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One block."""

    name: str
    share: float
    share_macs: float
    label: str
    """What is written beside it."""


def bars_of(document: Mapping[str, Any]) -> list[Bar]:
    """The bars of an advice's document, in the order of the network."""
    return [
        Bar(
            name=block["name"],
            share=block["share"] or 0.0,
            share_macs=block["share_macs"] or 0.0,
            label=f"{milliseconds(block['ms'])} ms, {percent(block['share'])} of the time for "
            f"{percent(block['share_macs'])} of the MACs, {block['bound']}",
        )
        for block in document["blocks"]
    ]


def write_plot(document: Mapping[str, Any], path: Path) -> None:
    """Draw the document of an advice; the ending of `path`, `.html` or `.png`, says how."""
    if path.suffix.lower() == ".png":
        draw(document).save(path)
        return
    config = {"responsive": True, "displaylogo": False}
    bars_figure(document).write_html(path, include_plotlyjs=True, config=config)


def title_of(document: Mapping[str, Any]) -> str:
    """The network, the deployment and the device."""
    name, call = name_in(document["deployment"]), milliseconds(document["p50_ms"])
    return f"{document['model']} in {name}: {call} ms a call on {document['device']}, {document['threads']} threads"


def bars_figure(document: Mapping[str, Any]) -> "go.Figure":
    """Horizontal bars, the first block on top."""
    import plotly.graph_objects as go

    bars = bars_of(document)
    names = [escape(bar.name) for bar in bars]
    figure = go.Figure()
    for name, colour, values in (
        ("share of the time", TIME, [bar.share for bar in bars]),
        ("share of the MACs", MACS, [bar.share_macs for bar in bars]),
    ):
        figure.add_bar(
            y=names,
            x=values,
            name=name,
            orientation="h",
            marker={"color": colour},
            customdata=[escape(bar.label) for bar in bars],
            hovertemplate="%{customdata}<extra>%{y}</extra>",
        )
    figure.update_layout(
        template="plotly_white",
        barmode="group",
        font={"family": "system-ui, sans-serif", "size": 13},
        title={"text": escape(title_of(document)), "font": {"size": 14}},
        height=140 + ROW * len(bars),
        margin={"l": 60, "r": 20, "t": 60, "b": 60},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def draw(document: Mapping[str, Any]) -> "Image.Image":
    """The same with Pillow, without a plotting library."""
    from nas.bench.png import MARGIN, WIDTH, blank

    bars = bars_of(document)
    top = MARGIN + 52
    image, canvas = blank(top + ROW * len(bars) + MARGIN)
    canvas.text(MARGIN, MARGIN, shortened(title_of(document), 120), "lt", bold=True)
    for left, colour, text in ((LABELS, TIME, "share of the time"), (LABELS + 170, MACS, "share of the MACs")):
        canvas.bar(left, MARGIN + 26, left + 18, MARGIN + 38, colour)
        canvas.text(left + 26, MARGIN + 32, text)
    largest = max((max(bar.share, bar.share_macs) for bar in bars), default=0.0) or 1.0
    space = WIDTH - MARGIN - 60 - LABELS
    for place, bar in enumerate(bars):
        y = top + ROW * place
        canvas.text(LABELS - 12, y + BAR, shortened(bar.name), "rm")
        for row, (value, colour) in enumerate(((bar.share, TIME), (bar.share_macs, MACS))):
            end = LABELS + space * value / largest
            canvas.bar(LABELS, y + row * (BAR + 1), end, y + row * (BAR + 1) + BAR, colour)
            canvas.text(end + 6, y + row * (BAR + 1) + BAR / 2, percent(value))
    return image
