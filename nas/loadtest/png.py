"""Latency over rate as an image, drawn with the few means that the bench's plot has."""

from collections.abc import Sequence

from PIL import Image

from nas.bench.chart import shortened
from nas.bench.png import GRID, MARGIN, WIDTH, blank, scale_of
from nas.loadtest.figure import SLO, Line, colour_of

PLOT_HEIGHT, ROW = 380, 20


def draw(lines: Sequence[Line], slo_ms: float | None, caption: str) -> Image.Image:
    """The 99th percentile as a line, the median as hollow dots; open and closed loops of a server in one colour."""
    height = 2 * MARGIN + PLOT_HEIGHT + ROW * (len(lines) + 2)
    image, canvas = blank(height)
    canvas.text(MARGIN, MARGIN, f"{caption}: latency in ms over right answers per second", "lt", bold=True)
    top, bottom, left, right = MARGIN + 34.0, MARGIN + PLOT_HEIGHT - 30.0, MARGIN + 50.0, WIDTH - 2.0 * MARGIN
    latencies = [value for line in lines for _, p50, p99 in line.points for value in (p50, p99)]
    up, marks = scale_of([*latencies, *([slo_ms] if slo_ms is not None else [])], bottom, top)
    across, rates = scale_of([0.0, *(rate for line in lines for rate, _, _ in line.points)], left, right, log=False)
    for mark in marks:
        canvas.line([(left, up(mark)), (right, up(mark))], GRID)
        canvas.text(left - 6, up(mark), f"{mark:g}", "rm")
    for mark in rates:
        canvas.text(across(mark), bottom + 12, f"{mark:g}", "mm")
    if slo_ms is not None:
        canvas.line([(left, up(slo_ms)), (right, up(slo_ms))], SLO, 1)
    for k, line in enumerate(lines):
        colour = colour_of(lines, line)
        canvas.line([(across(rate), up(p99)) for rate, _, p99 in line.points], colour, 2 if line.open_loop else 1)
        for rate, p50, p99 in line.points:
            canvas.dot(across(rate), up(p99), colour)
            canvas.dot(across(rate), up(p50), colour, hollow=True)
        y = MARGIN + PLOT_HEIGHT + ROW * (k + 0.5)
        canvas.line([(MARGIN, y), (MARGIN + 20, y)], colour, 3 if line.open_loop else 1)
        loop = "open" if line.open_loop else "closed"
        canvas.text(MARGIN + 28, y, f"{shortened(line.server, 80)}, {loop} loop: p99 (dots), p50 (hollow)")
    return image
