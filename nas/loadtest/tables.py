"""A load test's document as tables for a terminal of 100 columns."""

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nas.loadtest.document import Document, server_text
from nas.loadtest.subjects import settings_text
from nas.text import count, milliseconds, percent

WIDTH = 100
INVALID_MARK = "!"


def print_load_test(document: Document, console: Console | None = None) -> None:
    """The whole result on stdout (or `console`)."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH, file=console.file)
    for part in load_tables(document):
        console.print(part)


def load_tables(document: Document) -> list[RenderableType]:
    """Closed loops, open loops, the rate at the limit, scaling, cost, and what has to be said about them."""
    servers = document["servers"]
    parts: list[RenderableType] = [Text(document["device"], style="dim")]
    parts += [_loops(document, "closed")] if any(s["closed"] for s in servers) else []
    parts += [_loops(document, "open")] if any(s["open"] for s in servers) else []
    parts += [_at_slo(document)] if document["slo_ms"] is not None else []
    parts += [_scaling(document)] if document["scaling"] else []
    parts += [_cost(document)] if any(s["cost"] for s in servers) else []
    return [*parts, *(Text(line) for line in remarks(document))]


def remarks(document: Document) -> list[str]:
    """Everything that must be known before a figure of the tables is believed."""
    alone = [s["images"]["source"] for s in document["servers"] if s["images"]["count"] == 1]
    lines = [f"every request sends the same image, {alone[0]}; --images gives others"] if alone else []
    for server in document["servers"]:
        name = server_text(server)
        if server["not_measured"]:
            lines.append(f"{name}: {server['not_measured']}")
        invalid = [row for row in (*server["closed"], *server["open"], *_confirmed(server)) if not row["valid"]]
        if invalid:
            lines.append(f"{INVALID_MARK} {name}: not to be relied on: {invalid[0]['why_invalid'][0]}")
    lines += [
        f"from {count(pair['images_per_s'])} images/s on {pair['above']} is cheaper than {pair['below']}"
        for pair in document["break_even"]
    ]
    return lines


def _loops(document: Document, which: str) -> Table:
    closed = which == "closed"
    runs = f"median of {document['runs']} runs" if document["runs"] > 1 else "one run"
    title = "Closed loop: every client waits for its answer" if closed else "Open loop: requests at random times"
    table = _table(
        f"{title} ({runs} of {document['seconds_per_trial']:g} s)",
        ["server", "settings"],
        ["clients" if closed else "asked/s", "images/s", "p50 ms", "p99 ms", "failed", "cv 1 s", "cv runs"],
    )
    for server in document["servers"]:
        for row in server[which]:
            table.add_row(
                Text(server["server"]),
                _settings(server),
                str(row["clients"]) if closed else f"{row['rate']:g}",
                _marked(count(row["images_per_s"]), valid=row["valid"]),
                milliseconds(row["latency_ms"]["p50"]),
                milliseconds(row["latency_ms"]["p99"]),
                str(sum(row["failures"].values())),
                percent(row["cv_1s"]),
                percent(row["cv_runs"]),
            )
    return table


def _at_slo(document: Document) -> Table:
    table = _table(
        f"Largest rate at which 99 % are answered within {document['slo_ms']:g} ms",
        ["server", "settings"],
        ["images/s", "p50 ms", "p99 ms", "failed", "confirmed by runs"],
    )
    for server in document["servers"]:
        found = server["at_slo"]
        if found is None:
            continue
        trial = found["trial"]
        table.add_row(
            Text(server["server"]),
            _settings(server),
            "none" if found["images_per_s"] is None else _marked(count(found["images_per_s"]), valid=trial["valid"]),
            milliseconds(trial["latency_ms"]["p50"]) if trial else "-",
            milliseconds(trial["latency_ms"]["p99"]) if trial else "-",
            str(sum(trial["failures"].values())) if trial else "-",
            str(found["confirmed_by"]) if found["confirmed_by"] else "-",
        )
    return table


def _scaling(document: Document) -> Table:
    table = _table("Scaling over replicas", ["server"], ["replicas", "threads", "batch", "images/s", "efficiency"])
    for row in document["scaling"]:
        table.add_row(
            Text(row["server"]), str(row["replicas"]), str(row["threads"]), str(row["batch"]),
            count(row["images_per_s"]), percent(row["efficiency"]),
        )  # fmt: skip
    return table


def _cost(document: Document) -> Table:
    table = _table(
        "Cost (prices as given; a machine with other cores: rate in proportion)",
        ["server", "machine"],
        ["price/h", "images/s", "per million", "at 30 % load", "price of"],
    )
    for server in document["servers"]:
        for row in server["cost"]:
            table.add_row(
                Text(server_text(server)),
                Text(row["name"]),
                f"{row['price_per_hour']:g} {row['currency']}",
                count(row["images_per_s"]),
                f"{row['per_million']:.3g}",
                f"{row['per_million_at_30_pct']:.3g}",
                row["date"],
            )
    return table


def _confirmed(server: Document) -> list[Document]:
    trial = server["at_slo"]["trial"] if server["at_slo"] is not None else None
    return [trial] if trial is not None else []


def _settings(server: Document) -> str:
    """`-` for a server that is not ours."""
    return settings_text(server["settings"]) if server["settings"] is not None else "-"


def _marked(text: str, *, valid: bool) -> str:
    return text if valid else f"{INVALID_MARK} {text}"


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
