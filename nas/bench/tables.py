"""A bench's document as tables for a terminal of 100 columns."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nas.bench.chart import shortened
from nas.bench.document import (
    RANDOM_INPUTS,
    Document,
    deployment_name,
    fastest,
    fastest_called,
    is_disturbed,
    was_measured,
)
from nas.deployment import name_in
from nas.text import count, milliseconds, percent

WIDTH = 100
NAME_WIDTH = 34
DISTURBED_MARK = "!"


def print_bench(document: Document, console: Console | None = None) -> None:
    """The whole result on stdout (or `console`)."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH, file=console.file)
    for part in bench_tables(document):
        console.print(part)


def bench_tables(document: Document) -> list[RenderableType]:
    """Latency, throughput, operators and what has to be said about them, in reading order."""
    packages = " ".join(f"{name} {version}" for name, version in document["fingerprint"]["packages"])
    host = f"{document['device']}, {document['threads']} threads"
    parts: list[RenderableType] = [
        Text(f"{host}; {packages}" if packages else host, style="dim"),
        latency_table(document),
    ]
    parts += [calls_table(document)] if len(document["calls"]) > 1 else []
    parts += [throughput_table(document)] if len(_ways(document)) > 1 else []
    operators = operators_table(document)
    parts += [operators] if operators is not None else []
    parts += [blocks_table(document, entry) for entry in document["blocks"] if entry["units"]]
    return [*parts, *(Text(line) for line in remarks(document))]


def names_in_tables(models: Sequence[str]) -> dict[str, str]:
    """Each network's name by the one it was given by: of paths as few last parts as tell all of them apart."""
    parts = {name: name.rstrip("/").split("/") for name in models}
    for count_shown in range(1, max(map(len, parts.values()), default=0)):
        short = {name: "/".join(of[-count_shown:]) for name, of in parts.items()}
        if len(set(short.values())) == len(parts):
            return short
    return {name: name for name in parts}


def latency_table(document: Document) -> Table:
    """Percentiles at the smallest batch, one row per network and deployment; a network's fastest row stands out.

    Where no other batches were measured, the throughput is a column of it; so is the time on a GPU alone where one
    was measured.
    """
    smallest = min(cell["batch"] for cell in document["cells"])
    alone = len(_ways(document)) == 1
    on_device = any(cell["device_ms"] is not None for cell in document["cells"])
    _, *patterns = document["calls"]
    table = _table(
        f"Latency at batch {smallest}, ms per call (continuous calls, {_sessions(document['sessions'])}"
        + (f"; p50 with pauses: {' and '.join(patterns)}, one session)" if patterns else ")"),
        ["network", "deployment"],
        [
            "input",
            "p50",
            *(["GPU alone"] if on_device else []),
            "p90",
            "p99",
            "calls",
            *patterns,
            "spread %",
            "memory MB",
            *(["images/s"] if alone else []),
        ],
    )
    sizes = {model["model"]: model for model in document["models"]}
    names = names_in_tables(list(sizes))
    for cell in _one_call_at_a_time(document, smallest):
        model = sizes[cell["model"]]
        table.add_row(
            Text(names[cell["model"]]),
            Text(deployment_name(cell)),
            "x".join(map(str, model["input"]["shape"])),
            _marked(milliseconds(cell["p50_ms"]), cell),
            *([milliseconds(cell["device_ms"])] if on_device else []),
            milliseconds(cell["p90_ms"]),
            milliseconds(cell["p99_ms"]),
            "-" if cell["calls_per_session"] is None else str(cell["calls_per_session"]),
            *(milliseconds(cell["p50_by_calls_ms"].get(calls)) for calls in patterns),
            f"{cell['between_session_spread_pct']:.1f}" if len(cell["session_p50_ms"]) > 1 else "-",
            "-" if cell["memory_bytes"] is None else f"{cell['memory_bytes'] / 1e6:.1f}",
            *([count(cell["images_per_s"])] if alone else []),
            style="bold" if cell is fastest(document["cells"], cell["model"]) else None,
        )
    return table


def calls_table(document: Document) -> Table:
    """The fastest deployment of each network, by pattern of calls: it need not be the same."""
    patterns, names = document["calls"], names_in_tables([model["model"] for model in document["models"]])
    table = _table("Fastest deployment by pattern of calls, p50 ms", ["network"], patterns)
    for model in document["models"]:
        best = [(calls, fastest_called(document["cells"], model["model"], calls)) for calls in patterns]
        table.add_row(
            Text(names[model["model"]]),
            *(
                "-" if cell is None else f"{name_in(cell)} {milliseconds(cell['p50_by_calls_ms'][calls])}"
                for calls, cell in best
            ),
        )
    return table


def throughput_table(document: Document) -> Table:
    """Images per second, one column per batch and number of streams."""
    ways, names = _ways(document), names_in_tables([model["model"] for model in document["models"]])
    headings = [f"batch {batch}" if streams == 1 else f"{streams} streams" for batch, streams in ways]
    table = _table("Throughput, images/s", ["network", "deployment"], headings)
    cells = {(c["model"], name_in(c), c["batch"], c["streams"]): c for c in document["cells"]}
    for row in _one_call_at_a_time(document, min(batch for batch, _ in ways)):
        identity = (row["model"], name_in(row))
        entries = [cells.get((*identity, *way)) for way in ways]
        named = next((entry for entry in entries if entry is not None and was_measured(entry)), row)
        table.add_row(
            Text(names[row["model"]]),
            Text(deployment_name(named)),
            *("-" if entry is None else _marked(count(entry["images_per_s"]), entry) for entry in entries),
        )
    return table


def operators_table(document: Document) -> Table | None:
    """The slowest operators of every network in its fastest deployment; None where nothing was profiled."""
    table = _table(
        "Slowest operators (a separate, profiled run: slower)",
        ["network", "deployment", "operator"],
        ["ms", "share"],
    )
    names = names_in_tables([model["model"] for model in document["models"]])
    for model in document["models"]:
        best = fastest(document["cells"], model["model"])
        for entry in document["operators"]:
            if best is None or (entry["model"], name_in(entry)) != (best["model"], name_in(best)):
                continue
            for operator in entry["slowest"]:
                table.add_row(
                    Text(names[entry["model"]]),
                    Text(name_in(entry)),
                    Text(shortened(operator["name"], NAME_WIDTH)),
                    milliseconds(operator["ms"]),
                    percent(operator["share"]),
                )
    return table if table.row_count else None


def blocks_table(document: Document, entry: Mapping[str, Any]) -> Table:
    """Shape, work and time of each block of one network in its fastest deployment, with their shares of the whole."""
    best = fastest(document["cells"], entry["model"])
    known = {name_in(d): d for d in entry["deployments"]}
    name = name_in(best) if best is not None and name_in(best) in known else next(iter(known), "")
    times: list[float | None] = known[name]["ms"] if known else [None] * len(entry["units"])
    total_ms, macs = sum(ms or 0.0 for ms in times), sum(unit["macs"] for unit in entry["units"])
    table = _table(
        f"Blocks of {entry['model']} in {name or 'no runtime'} (a separate, profiled run: slower)",
        ["block", "output"],
        ["MACs", "of all", "ms", "of all"],
    )
    for unit, ms in zip(entry["units"], times, strict=True):
        table.add_row(
            Text(shortened(unit["name"], NAME_WIDTH)),
            " x ".join(map(str, unit["output_shape"])),
            count(unit["macs"]),
            percent(unit["macs"] / macs) if macs else "-",
            *(("-", "-") if ms is None else (milliseconds(ms), percent(ms / total_ms) if total_ms else "-")),
        )
    return table


def remarks(document: Document) -> list[str]:
    """Meaning of the marks, and every cell that was not measured, with its reason."""
    cells = document["cells"]
    lines = []
    if any(cell["int8_calibrated_on"] == RANDOM_INPUTS for cell in cells):
        lines.append("* calibrated on random inputs: its speed counts, its outputs do not")
    lines += [f"no blocks: {entry['not_split']}" for entry in document["blocks"] if entry["not_split"]]
    untrained = [model["model"] for model in document["models"] if model["weights"] == "random"]
    if untrained:
        lines.append(f"untrained, random weights: {', '.join(untrained)}")
    measured = [cell for cell in cells if was_measured(cell)]
    disturbed = [cell for cell in measured if is_disturbed(cell)]
    if disturbed:
        lines.append(
            f"{DISTURBED_MARK} disturbed, also when repeated: {len(disturbed)} of {len(measured)} measurements, "
            f"the first because {disturbed[0]['disturbance']}"
        )
    lines += [f"not measured: {where}: {why}" for why, where in _failures(cells).items()]
    return lines


def _sessions(count: int) -> str:
    return f"median of {count} fresh sessions" if count > 1 else "one session"


def _failures(cells: Sequence[Document]) -> dict[str, str]:
    """Reason -> the cells it holds for; reasons of one network that differ in a file or a number alone are one."""
    found: dict[tuple[str, str], list[Document]] = {}
    for cell in cells:
        if not was_measured(cell):
            file, colon, cause = cell["not_measured"].partition(": ")
            found.setdefault((cell["model"], re.sub(r"\d+", "#", cause if colon else file)), []).append(cell)
    lines: dict[str, list[str]] = {}
    for (model, _), missing in found.items():
        deployments = ", ".join(dict.fromkeys(map(deployment_name, missing)))
        batches = " and ".join(map(str, dict.fromkeys(cell["batch"] for cell in missing)))
        streams = " and ".join(map(str, dict.fromkeys(c["streams"] for c in missing if c["streams"] > 1)))
        where = f"{model} in {deployments} at batch {batches}" + (f", {streams} streams" if streams else "")
        lines.setdefault(missing[0]["not_measured"], []).append(where)
    return {why: "; ".join(where) for why, where in lines.items()}


def _ways(document: Document) -> list[tuple[int, int]]:
    """Batches and streams that were measured, in the order of the cells."""
    return list(dict.fromkeys((cell["batch"], cell["streams"]) for cell in document["cells"]))


def _one_call_at_a_time(document: Document, batch: int) -> list[Document]:
    """Cells without streams at that batch, network by network."""
    order = [model["model"] for model in document["models"]]
    rows = [cell for cell in document["cells"] if cell["batch"] == batch and cell["streams"] == 1]
    return sorted(rows, key=lambda cell: order.index(cell["model"]))


def _marked(text: str, cell: Document) -> str:
    return f"{DISTURBED_MARK} {text}" if was_measured(cell) and is_disturbed(cell) else text


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
