"""A result document as tables for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nas.report.document import Document, answer, p50_ms, question
from nas.text import count, duration, milliseconds, points

PLAIN_WIDTH = 100
"""Columns where stdout is no terminal: files and pipes should not wrap differently from machine to machine."""


def print_result(document: Document, console: Console | None = None) -> None:
    """The whole result on stdout (or `console`)."""
    console = console or _stdout()
    for renderable in result_tables(document):
        console.print(renderable)


def print_targets(targets: Iterable[Mapping[str, Any]], console: Console | None = None) -> None:
    """One row per target, as `nas.targets.registry.list_targets` describes them."""
    table = _table("Targets", ["target", "source", "device", "deployments", "this host"])
    for target in targets:
        _add(
            table,
            target["name"],
            target["source"],
            target["device"],
            ", ".join(target["deployments"]),
            "yes" if target["matches_host"] else "no",
        )
    console = console or _stdout()
    console.print(table)
    for target in targets:
        console.print(Text(f"{target['name']}: {target['description']}"))
        if target["held_out"]:
            console.print(Text(f"  latency of networks it was not fitted on: {target['held_out']}", style="dim"))


def print_profile(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """How well a profile predicts networks it was not fitted on, as `nas.targets.profiling.profile_summary` says."""
    title = f"Profile {summary['profile']} of {summary['device']}: errors on held-out networks"
    table = _table(
        title,
        ["deployment"],
        ["networks", "held out", "mean error %", "within 10 %", "constant", "MACs only", "noise floor %"],
    )
    for row in summary["deployments"]:
        rates = (row[key] for key in ("mape", "within_10pct", "constant_within_10pct", "macs_within_10pct"))
        _add(
            table,
            row["deployment"],
            str(row["n_networks"]),
            str(row["n_heldout"]),
            *("-" if rate is None else f"{100 * rate:.1f}" for rate in rates),
            f"{row['noise_floor_pct']:.1f}",
        )
    console = console or _stdout()
    console.print(table)
    if summary["disturbed"]:
        console.print(Text(f"{summary['disturbed']} measurements stayed disturbed: profile again on a quiet machine"))


def result_tables(document: Document) -> list[RenderableType]:
    """Headline, feasibility, winners, deployments, baselines and notes, in reading order."""
    parts: list[RenderableType] = [Text(question(document)), Text(answer(document), style="bold"), Text("")]
    parts.append(feasibility_table(document))
    if document["best"]:
        parts += [winners_table(document), deployments_table(document)]
    if document["baselines"]:
        parts.append(baselines_table(document))
        parts += [Text(f"{b['name']}: {b['note']}") for b in document["baselines"] if b["note"]]
    parts += [Text(f"note: {note}") for note in document["notes"]]
    spent = document["seconds"].get("total")
    parts.append(
        Text(
            f"{count(document['candidates_scored'])} candidates scored of {count(document['space_size'])}, "
            f"{document['candidates_evaluated']} evaluated" + (f", {duration(spent)} in all" if spent else "")
        )
    )
    parts.append(Text(f"run: {document['run_dir']}"))
    return parts


def feasibility_table(document: Document) -> Table:
    table = _table(
        f"Latencies of {document['space']} on {document['target']} (ms, limit {milliseconds(document['limit_ms'])})",
        ["deployment"],
        ["fastest", "median", "slowest"],
        ["can keep the limit"],
    )
    for row in document["feasibility"]:
        latencies = (milliseconds(row[key]) for key in ("min_ms", "median_ms", "max_ms"))
        _add(table, row["deployment"], *latencies, "yes" if row["satisfiable"] else "no")
    return table


_NUMBERS = ("p50 ms", "limit", "valid. %", "test %", "MACs", "params")


def winners_table(document: Document) -> Table:
    table = _table("Winners", ["#", "deployment"], ("px", *_NUMBERS), ["model"])
    for best in document["best"]:
        _add(table, str(best["rank"]), *_common(best), best["onnx"] or "-")
    return table


def baselines_table(document: Document) -> Table:
    table = _table("Baselines, same data and recipe", ["network", "deployment"], ("px", *_NUMBERS))
    for baseline in document["baselines"]:
        _add(table, baseline["name"], *_common(baseline))
    return table


def deployments_table(document: Document) -> Table:
    table = _table(
        "Deployments tried", ["#", "deployment"], ["p50 ms", "worst session ms", "valid. %"], ["chosen", "reason"]
    )
    for best in document["best"]:
        for tried in best["deployments"]:
            _add(
                table,
                str(best["rank"]),
                tried["name"],
                milliseconds(tried["p50_ms"]),
                milliseconds(tried["worst_session_p50_ms"]),
                points(tried["accuracy"]),
                "yes" if tried["chosen"] else "no",
                tried["reason"] or "",
            )
    return table


def _common(result: Document) -> Sequence[str]:
    """Deployment, resolution and the columns `_NUMBERS` of a winner or a baseline."""
    accuracy = result["accuracy"] or {}
    predicted = result["measured_latency_ms"] is None and p50_ms(result) is not None
    deployed = accuracy.get("deployed")
    return (
        f"{result['runtime']}-{result['precision']}",
        str(result["resolution"]),
        ("~" if predicted else "") + milliseconds(p50_ms(result)),
        "kept" if result["within_limit"] else "missed",
        points(deployed if deployed is not None else accuracy.get("trained")),
        points(accuracy.get("test")),
        count(result["macs"]),
        count(result["params"]),
    )


def _table(title: str, *columns: Sequence[str]) -> Table:
    """Groups of columns, alternately text (left) and numbers (right)."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for group, headings in enumerate(columns):
        for heading in headings:
            if group % 2:
                table.add_column(heading, justify="right", no_wrap=True)
            else:
                table.add_column(heading, overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    # As Text, so that brackets in a name are not read as markup.
    table.add_row(*(Text(cell) for cell in cells))


def _stdout() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)
