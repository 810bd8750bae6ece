"""A scatter plot with logarithmic axes and the diagonal, as an SVG file without a plotting library."""

from __future__ import annotations

import math
from html import escape

import numpy as np
from numpy.typing import NDArray

SIZE, MARGIN = 460, 56
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Okabe and Ito's, told apart by readers with any colour vision."""
BAND = 0.10
"""Relative error marked on both sides of the diagonal."""


def scatter_svg(
    x: NDArray[np.float64], y: NDArray[np.float64], groups: NDArray[np.str_], xlabel: str, ylabel: str
) -> str:
    """Points (n,) of positive `x` and `y`, coloured by group, over the diagonal and a band of 10 % around it."""
    low = math.log10(min(x.min(), y.min())) - 0.05
    high = math.log10(max(x.max(), y.max())) + 0.05

    def at(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * (SIZE - 2 * MARGIN)

    def point(px: float, py: float) -> str:
        return f"{MARGIN + at(px):.1f},{SIZE - MARGIN - at(py):.1f}"

    ends = 10**low, 10**high
    corner = [(e, e * f) for f, order in ((1 + BAND, ends), (1 / (1 + BAND), ends[::-1])) for e in order]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{SIZE}" height="{SIZE}" fill="#fff"/>',
        f'<polygon points="{" ".join(point(px, py) for px, py in corner)}" fill="#eee"/>',
        f'<polyline points="{point(ends[0], ends[0])} {point(ends[1], ends[1])}" stroke="#888" fill="none"/>',
    ]
    for tick in _ticks(*ends):
        place = MARGIN + at(tick)
        parts.append(f'<text x="{place:.1f}" y="{SIZE - MARGIN + 18}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{MARGIN - 8}" y="{SIZE - place + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for colour, group in zip(COLOURS, sorted(set(groups)), strict=False):
        chosen = groups == group
        for px, py in zip(x[chosen], y[chosen], strict=True):
            cx, cy = point(px, py).split(",")
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}" fill-opacity="0.7"/>')
        line = 20 + 16 * sorted(set(groups)).index(group)
        parts.append(f'<circle cx="{MARGIN + 6}" cy="{line}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{MARGIN + 16}" y="{line + 4}">{escape(str(group))}</text>')
    middle = SIZE / 2
    parts.append(f'<text x="{middle}" y="{SIZE - 12}" text-anchor="middle">{escape(xlabel)}</text>')
    parts.append(
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{escape(ylabel)}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within the range."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
