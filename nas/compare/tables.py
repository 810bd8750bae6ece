"""A comparison's document as tables for a terminal of 100 columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nas.text import count, milliseconds, percent

Document = Mapping[str, Any]
WIDTH = 100
DISTURBED_MARK = "!"


def print_comparison(document: Document, console: Console | None = None) -> None:
    """The whole comparison on stdout (or `console`)."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH, file=console.file)
    for part in comparison_tables(document):
        console.print(part)


def comparison_tables(document: Document) -> list[RenderableType]:
    """Latency, throughput and energy; cost; roofline; what others have published; and what has to be said."""
    parts: list[RenderableType] = [Text(_side_text(document, side), style="dim") for side in ("a", "b")]
    parts += [latency_table(document), throughput_table(document)]
    parts += [cost_table(document)] if any(n["a"]["cost"] for n in document["networks"]) else []
    parts += [roofline_table(document)] if any(n[s]["roofline"] for n, s in _rows(document)) else []
    return [*parts, quoted_table(document), *(Text(line) for line in remarks(document))]


def latency_table(document: Document) -> Table:
    """Median of one call at a time by batch, and B's as a multiple of A's."""
    batches = sorted({call["batch"] for n, side in _rows(document) for call in n[side]["calls"]})
    table = _table(
        "Measured: latency, p50 ms per call (one call at a time)",
        ["network", "", "deployment"],
        [f"batch {batch}" for batch in batches],
    )
    for network, side in _rows(document):
        of = network[side]
        known = {call["batch"]: call["p50_ms"] for call in of["calls"]}
        mark = f"{DISTURBED_MARK} " if of["disturbed"] else ""
        table.add_row(
            Text(network["model"] if side == "a" else ""), side.upper(), Text(of["deployment"]),
            *(mark + milliseconds(known[b]) if b in known else "-" for b in batches),
        )  # fmt: skip
        if side == "b":
            ratios = network["latency_ratio"]
            table.add_row("", "B/A", "", *(_times(ratios.get(str(batch))) for batch in batches), style="dim")
    return table


def throughput_table(document: Document) -> Table:
    """The highest throughput of each side, where it was reached, and energy."""
    table = _table(
        "Measured: most images per second, and energy of the device alone",
        ["network", "", "at"],
        ["images/s", "B/A", "J/image", "J/image at batch 1"],
    )
    for network, side in _rows(document):
        of = network[side]
        single = next((call["joules_per_image"] for call in of["calls"] if call["batch"] == 1), None)
        streams = f", {of['at']['streams']} streams" if of["at"]["streams"] > 1 else ""
        table.add_row(
            Text(network["model"] if side == "a" else ""),
            side.upper(),
            f"batch {of['at']['batch']}{streams}",
            count(of["images_per_s"]),
            _times(network["throughput_ratio"]) if side == "b" else "",
            _joules(of["joules_per_image"]),
            _joules(single),
        )
    return table


def cost_table(document: Document) -> Table:
    """Cost of a million images at the highest throughput."""
    table = _table(
        "Cost at that throughput (prices as given; a processor with other cores: rate in proportion)",
        ["network", "", "machine"],
        ["price/h", "images/s", "per million", "at 30 % load", "price of"],
    )
    for network, side in _rows(document):
        cost = network[side]["cost"]
        table.add_row(
            Text(network["model"] if side == "a" else ""), side.upper(), Text(cost["name"]),
            f"{cost['price_per_hour']:g} {cost['currency']}", count(cost["images_per_s"]),
            f"{cost['per_million']:.3g}", f"{cost['per_million_at_30_pct']:.3g}", cost["date"],
        )  # fmt: skip
    return table


def roofline_table(document: Document) -> Table:
    """Single calls against ceilings that were measured on the same machine."""
    table = _table(
        "Roofline: a call of one image against measured ceilings",
        ["network", ""],
        ["GMAC/s", "ceiling", "GB/s ceiling", "least ms", "of the call", "bound"],
    )
    for network, side in _rows(document):
        roof = network[side]["roofline"]
        cells = ["-"] * 6 if roof is None else [
            f"{roof['reached_gmacs_per_s']:.3g}", f"{roof['gmacs_per_s']:.4g}", f"{roof['gb_per_s']:.3g}",
            milliseconds(roof["floor_ms"]), percent(roof["share"]), roof["bound"],
        ]  # fmt: skip
        table.add_row(Text(network["model"] if side == "a" else ""), side.upper(), *cells)
    return table


def quoted_table(document: Document) -> Table:
    """What others have published."""
    table = _table(
        "QUOTED, not measured here: ResNet-50 at 224 px, int8, MLPerf Inference (closed division)",
        ["device", "round", "submitter"],
        ["one image p90 ms", "offline/s", "server/s"],
    )
    for row in document["quoted"]["rows"]:
        table.add_row(
            row["device"], row["round"], row["submitter"], milliseconds(row["one_image_p90_ms"]),
            _span(row["offline_per_s"]), _span(row["server_per_s"]),
        )  # fmt: skip
    return table


def remarks(document: Document) -> list[str]:
    """Break-even demands, marks, and what could not be compared."""
    lines = [break_even_text(network) for network in document["networks"] if network["break_even"] is not None]
    if any(network[side]["disturbed"] for network, side in _rows(document)):
        lines.append(f"{DISTURBED_MARK} some of these measurements were disturbed, also when repeated: bench again")
    if any(network[side]["joules_per_image"] is None for network, side in _rows(document)):
        lines.append("J/image: a dash where the device's energy counter could not be read")
    if not all(network[side]["roofline"] for network, side in _rows(document)):
        lines.append("no roofline where a bench has no ceilings: `nas bench MODEL --roofline --json` measures them")
    return [*lines, *(f"not compared: {why}" for why in document["not_compared"])]


def break_even_text(network: Document) -> str:
    """From which demand on the other machine is the cheaper one, as a sentence."""
    found = network["break_even"]
    below = found["below"].upper()
    if found["above"] is None:
        return f"{network['model']}: {below} is the cheaper one at any demand"
    above, rate = found["above"].upper(), found["images_per_s"]
    if rate == 0:
        return f"{network['model']}: {above} is never dearer than {below}"
    return (
        f"{network['model']}: {below} is cheaper up to {count(rate)} images/s, {above} from there on (whole machines)"
    )


def _rows(document: Document) -> list[tuple[Document, str]]:
    return [(network, side) for network in document["networks"] for side in ("a", "b")]


def _side_text(document: Document, side: str) -> str:
    entry = document[side]
    gpu = f", {entry['gpu']}" if entry["gpu"] else ""
    return f"{side.upper()}: {entry['file']}: {entry['device']}, {entry['threads']} threads{gpu}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3g} x"


def _joules(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _span(values: Sequence[int] | None) -> str:
    return "-" if values is None else " to ".join(f"{value:,}" for value in dict.fromkeys(values))


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
