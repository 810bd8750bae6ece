"""An advice's document as tables for a terminal of 100 columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nas.bench.chart import shortened
from nas.deployment import name_in
from nas.text import count, milliseconds, percent, points

Document = Mapping[str, Any]
WIDTH, NAME_WIDTH = 100, 16
CHANGES, FINDINGS = 12, 12
"""So many are shown; the document has all."""
FLIP_MARK = "*"


def print_advice(document: Document, console: Console | None = None) -> None:
    """The whole advice on stdout (or `console`)."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH, file=console.file)
    for part in advice_tables(document):
        console.print(part)


def advice_tables(document: Document) -> list[RenderableType]:
    """Blocks, the other deployment, findings, changes, and what has to be said about them."""
    host = f"{document['device']}, {document['threads']} threads"
    parts: list[RenderableType] = [Text(host, style="dim"), blocks_table(document)]
    parts += [Text(line) for line in sums(document)]
    if document["against"] is not None:
        parts += [against_table(document), *(Text(line) for line in sums(document["against"]))]
        parts += [Text(f"{FLIP_MARK} clearly slower than another block here, and clearly faster there")]
    parts += [findings_table(document)] if document["findings"] else [Text("No rule found anything.")]
    parts += [changes_table(document)] if document["what_if"] else []
    return [*parts, *(Text(line) for line in remarks(document))]


def blocks_table(document: Document) -> Table:
    """One row for each block, in the order of the network."""
    name = name_in(document["deployment"])
    table = _table(
        f"Blocks of {document['model']} in {name}, by the runtime's own profiler",
        ["block", "kind"],
        ["ms", "time %", "MACs", "MACs %", "excess", "GMAC/s", "peak %", "bound", "ran in"],
        padding=(0, 1, 0, 0),
    )
    for block in document["blocks"]:
        table.add_row(
            Text(shortened(block["name"], NAME_WIDTH)),
            block["kind"],
            milliseconds(block["ms"]),
            points(block["share"]),
            count(block["macs"]),
            points(block["share_macs"]),
            _times(block["excess"]),
            "-" if block["gmacs_per_s"] is None else f"{block['gmacs_per_s']:.0f}",
            "-" if block["ceiling_share"] is None else f"{100 * block['ceiling_share']:.0f}",
            block["bound"],
            block["precision"] or "-",
            style="bold" if (block["excess"] or 0) >= 2 and (block["share"] or 0) >= 0.05 else None,
        )
    return table


def against_table(document: Document) -> Table:
    """The same blocks in two deployments."""
    here, there = name_in(document["deployment"]), name_in(document["against"]["deployment"])
    table = _table(
        f"The same blocks in {there}",
        ["block"],
        [f"{here} ms", "time", "rank", f"{there} ms", "time", "rank", "times", ""],
    )
    for row in document["against"]["rows"]:
        table.add_row(
            Text(shortened(row["name"], NAME_WIDTH)),
            milliseconds(row["ms"]),
            percent(row["share"]),
            str(row["rank"]),
            milliseconds(row["against_ms"]),
            percent(row["against_share"]),
            str(row["against_rank"]),
            _times(row["against_ms"] / row["ms"] if row["ms"] else None),
            FLIP_MARK if row["flips"] else "",
        )
    return table


def findings_table(document: Document) -> Table:
    """What rules found, the most time first."""
    table = _table("Findings", ["block", "what"], ["ms"])
    for finding in document["findings"][:FINDINGS]:
        table.add_row(
            Text(shortened(finding["block"], NAME_WIDTH) or "-"), Text(finding["text"]), milliseconds(finding["ms"])
        )
    return table


def changes_table(document: Document) -> Table:
    """The changes of one decision that save the most, and those that were measured."""
    table = _table(
        f"What if: by {document['what_if_profile']}",
        ["part", "change"],
        ["saves ms", "90 % interval", "of all", "MACs", "measured ms"],
    )
    every = document["what_if"]
    shown = [c for c in every if c["measured_ms"] is not None]
    shown += [c for c in every if c["measured_ms"] is None and c["saves_ms"] > 0][: CHANGES - len(shown)]
    for change in sorted(shown, key=every.index):
        low, high = change["interval"]
        table.add_row(
            Text(change["block"]),
            Text(change["change"]),
            f"{change['saves_ms']:.3f}",
            f"{low:.3f} to {high:.3f}",
            percent(change["saves_ms"] / document["p50_ms"]),
            ("-" if change["d_macs"] <= 0 else "+") + count(abs(change["d_macs"])),
            "-" if change["measured_ms"] is None else f"{change['measured_ms']:.3f}",
        )
    return table


def sums(document: Document) -> list[str]:
    """The sum of blocks against an undisturbed call."""
    added_pct = document["profiler_overhead_pct"]
    corrected = (
        "which the profiler added, are taken off" if added_pct >= 0 else "which the profiler left out, are added"
    )
    line = (
        f"{name_in(document['deployment'])}: the blocks sum up to {milliseconds(document['blocks_ms'])} ms, and a call "
        f"takes {milliseconds(document['outside_ms'])} ms beside its operators: {document['sum_over_p50']:.2f} of the "
        f"{milliseconds(document['p50_ms'])} ms of an undisturbed call; "
        f"{milliseconds(document['unassigned_ms'])} ms belong to no block; "
        f"{abs(added_pct):.0f} % of a call, {corrected}"
    )
    return [line, *(["! the sessions stayed disturbed"] if document["verdict"] != "quiet" else [])]


def remarks(document: Document) -> list[str]:
    """What was left out, and what nothing here says."""
    hidden = len(document["findings"]) - FINDINGS
    lines = [f"{hidden} more findings in the document (--json)"] if hidden > 0 else []
    lines += [f"no what-ifs: {document['no_what_if']}"] if document["no_what_if"] else []
    if document["applied_before_ms"] is not None:
        quiet = document["applied_verdict"] == "quiet"
        lines.append(
            f"measured beside the original, which took {milliseconds(document['applied_before_ms'])} ms"
            + ("" if quiet else "; ! the sessions stayed disturbed")
        )
    return [*lines, *(f"note: {note}" for note in document["notes"])]


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(
    title: str, texts: Sequence[str], numbers: Sequence[str], padding: tuple[int, int, int, int] = (0, 1, 0, 1)
) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        pad_edge=False,
        padding=padding,
    )
    for heading in texts:
        table.add_column(heading, overflow="fold", no_wrap=heading != "what")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
