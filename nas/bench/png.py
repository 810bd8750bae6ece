"""A bench's plot as an image, drawn with Pillow: enough for lines, dots and labels, without a plotting library."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from nas.bench.chart import Chart, Latency, colour, is_log, shortened, ticks

SCALE = 2
"""Pixels per unit of length: drawn large, for sharp screens."""
WIDTH, MARGIN, ROW, PANEL_HEIGHT, LABELS = 1000, 16, 20, 230, 330
FONT_SIZE = 12
TEXT, GRID = "#333333", "#dddddd"

Place = Callable[[float], float]
"""From a value to units of length."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """Draws in units of length, of which each is `SCALE` pixels."""

    draw: ImageDraw.ImageDraw
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont
    bold: ImageFont.FreeTypeFont | ImageFont.ImageFont

    def line(self, points: list[tuple[float, float]], fill: str, width: float = 1) -> None:
        scaled = [(SCALE * x, SCALE * y) for x, y in points]
        self.draw.line(scaled, fill=fill, width=round(SCALE * width), joint="curve")

    def dot(self, x: float, y: float, fill: str, *, hollow: bool = False) -> None:
        self.draw.circle(
            (SCALE * x, SCALE * y), 4 * SCALE, fill="#ffffff" if hollow else fill, outline=fill, width=2 * SCALE
        )

    def bar(self, left: float, top: float, right: float, bottom: float, fill: str) -> None:
        self.draw.rectangle([SCALE * left, SCALE * top, SCALE * max(left, right), SCALE * bottom], fill=fill)

    def text(self, x: float, y: float, text: str, anchor: str = "lm", *, bold: bool = False) -> None:
        self.draw.text((SCALE * x, SCALE * y), text, fill=TEXT, font=self.bold if bold else self.font, anchor=anchor)


def blank(height: float) -> tuple[Image.Image, Canvas]:
    """A white image of `WIDTH` x `height` units, and what draws on it."""
    image = Image.new("RGB", (WIDTH * SCALE, round(height * SCALE)), "#ffffff")
    canvas = Canvas(
        ImageDraw.Draw(image),
        ImageFont.load_default(FONT_SIZE * SCALE),
        ImageFont.load_default(1.15 * FONT_SIZE * SCALE),
    )
    return image, canvas


def draw(chart: Chart) -> Image.Image:
    """Latencies on top, below them a throughput panel per network, and a legend."""
    columns = min(3, len(chart.models))
    rows = -(-len(chart.models) // columns)
    latencies_height = ROW * len(chart.latencies) + 60
    height = 2 * MARGIN + 24 + latencies_height + rows * PANEL_HEIGHT + 24
    image, canvas = blank(height)
    canvas.text(MARGIN, MARGIN, chart.caption, "lt")
    top = MARGIN + 24.0
    _latencies(canvas, chart, top)
    top += latencies_height
    width = (WIDTH - 2 * MARGIN) / columns
    for i, model in enumerate(chart.models):
        _throughput(canvas, chart, model, MARGIN + (i % columns) * width, top + (i // columns) * PANEL_HEIGHT, width)
    _legend(canvas, chart, height - MARGIN - 6)
    return image


def _latencies(canvas: Canvas, chart: Chart, top: float) -> None:
    title = f"Latency at batch {chart.batch}, ms per call (bar: fastest to slowest fresh session; hollow: disturbed)"
    canvas.text(MARGIN, top, title, "lt", bold=True)
    values = [value for row in chart.latencies for value in (row.low_ms, row.high_ms)]
    first, bottom = top + 30, top + 30 + ROW * len(chart.latencies)
    place, marks = scale_of(values, LABELS, WIDTH - 2 * MARGIN)
    for mark in marks:
        canvas.line([(place(mark), first), (place(mark), bottom)], GRID)
        canvas.text(place(mark), bottom + 8, f"{mark:g}", "mm")
    for i, row in enumerate(chart.latencies):
        _latency(canvas, row, place, first + (i + 0.5) * ROW)


def _latency(canvas: Canvas, row: Latency, place: Place, y: float) -> None:
    canvas.text(LABELS - 12, y, f"{shortened(row.model, 30)}  {row.deployment}", "rm")
    canvas.line([(place(row.low_ms), y), (place(row.high_ms), y)], colour(row.deployment), 2)
    canvas.dot(place(row.p50_ms), y, colour(row.deployment), hollow=row.disturbed)


def _throughput(canvas: Canvas, chart: Chart, model: str, left: float, top: float, width: float) -> None:
    lines = [line for line in chart.throughputs if line.model == model]
    canvas.text(left, top, f"{shortened(model, 28)}: images/s by batch", "lt", bold=True)
    batches = sorted({batch for line in lines for batch, _ in line.points})
    high = 1.05 * max(images for line in lines for _, images in line.points)
    x0, x1, y0, y1 = left + 48, left + width - 24, top + PANEL_HEIGHT - 46, top + 30
    span = math.log(batches[-1] / batches[0]) or 1.0

    def across(batch: float) -> float:
        return x0 + 10 + (x1 - x0 - 20) * math.log(batch / batches[0]) / span

    def up(images: float) -> float:
        return y0 - (y0 - y1) * images / high

    for mark in _round_marks(high):
        canvas.line([(x0, up(mark)), (x1, up(mark))], GRID)
        canvas.text(x0 - 6, up(mark), f"{mark:g}", "rm")
    for batch in batches:
        canvas.text(across(batch), y0 + 10, str(batch), "mm")
    for line in lines:
        points = [(across(batch), up(images)) for batch, images in line.points]
        canvas.line(points, colour(line.deployment), 2)
        for x, y in points:
            canvas.dot(x, y, colour(line.deployment))


def _legend(canvas: Canvas, chart: Chart, y: float) -> None:
    for i, deployment in enumerate(chart.deployments):
        x = MARGIN + 140 * i
        canvas.line([(x, y), (x + 20, y)], colour(deployment), 3)
        canvas.text(x + 26, y, deployment)


def scale_of(
    values: Sequence[float], left: float, right: float, *, log: bool | None = None
) -> tuple[Place, list[float]]:
    """Function that places a value between `left` and `right`, and the values to label.

    `log`: whether the scale is logarithmic; by default where the values, all above 0, spread far.
    """
    low, high = min(values), max(values)
    if is_log(values) if log is None else log:
        low, high = low / 1.2, high * 1.2
        return lambda v: left + (right - left) * math.log(v / low) / math.log(high / low), ticks(low, high)
    return lambda v: left + (right - left) * v / (1.08 * high), _round_marks(1.08 * high)


def _round_marks(high: float) -> list[float]:
    """0 and multiples of 1, 2 or 5 times a power of ten up to `high` (> 0); three to six of them."""
    power = 10.0 ** math.floor(math.log10(high / 2))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if high / step <= 5)
    return [step * i for i in range(int(high / step) + 1)]
