"""Small multiples of lines as an SVG file: enough to show searches side by side, without a plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

# Okabe and Ito's colours, told apart by readers with any colour vision.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#8c8c8c", "#e69f00", "#56b4e9")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 250, 170, 52, 34, 30
_FONT = 'font-family="system-ui, sans-serif" font-size="11" fill="#444"'


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over a common x; y is drawn between `low` and `high`, what lies outside at the border."""

    title: str
    lines: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    ticks: Mapping[str, float]
    """Labels of heights; those outside `y_range` are left out."""


def chart(rows: Sequence[Sequence[Panel]], x_label: str) -> str:
    """SVG with a legend on top; every name has one colour in all panels."""
    names = list(dict.fromkeys(name for row in rows for panel in row for name in panel.lines))
    colours = dict(zip(names, COLOURS, strict=False))
    width = _LEFT + max(len(row) for row in rows) * (_WIDTH + _GAP)
    height = _TOP + len(rows) * (_HEIGHT + _GAP + 22) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for k, name in enumerate(names):
        x = _LEFT + 110 * k
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="12" y2="12" stroke="{colours[name]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 27}" y="16" {_FONT}>{escape(name)}</text>')
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            parts += _panel(panel, colours, _LEFT + j * (_WIDTH + _GAP), _TOP + 16 + i * (_HEIGHT + _GAP + 22))
    parts.append(f'<text x="{width / 2:.0f}" y="{height - 6}" text-anchor="middle" {_FONT}>{escape(x_label)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, colours: Mapping[str, str], left: float, top: float) -> list[str]:
    def place(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
        across = left + _WIDTH * (x - panel.x_range[0]) / (panel.x_range[1] - panel.x_range[0])
        share = (np.clip(y, *panel.y_range) - panel.y_range[0]) / (panel.y_range[1] - panel.y_range[0])
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, top + _HEIGHT * (1 - share), strict=True))

    parts = [f'<text x="{left}" y="{top - 6}" font-weight="bold" {_FONT}>{escape(panel.title)}</text>']
    for label, tick in panel.ticks.items():
        if not panel.y_range[0] <= tick <= panel.y_range[1]:
            continue
        ends = place(np.array(panel.x_range), np.array([tick, tick]))
        height = ends.split(",")[-1]
        parts.append(f'<polyline points="{ends}" stroke="#dddddd" fill="none"/>')
        parts.append(
            f'<text x="{left - 5}" y="{float(height) + 4:.1f}" text-anchor="end" {_FONT}>{escape(label)}</text>'
        )
    span = panel.x_range[1] - panel.x_range[0]
    steps = next((n for n in (4, 5, 3) if (span / n).is_integer()), 4)
    for x_tick in np.linspace(*panel.x_range, steps + 1):
        x = left + _WIDTH * (x_tick - panel.x_range[0]) / (panel.x_range[1] - panel.x_range[0])
        parts.append(f'<text x="{x:.1f}" y="{top + _HEIGHT + 14}" text-anchor="middle" {_FONT}>{x_tick:g}</text>')
    for name, (x_values, y_values) in panel.lines.items():
        line = place(x_values, y_values)
        parts.append(f'<polyline points="{line}" stroke="{colours[name]}" stroke-width="1.8" fill="none"/>')
    return parts
