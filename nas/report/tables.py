"""A result document as tables for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nas.deployment import name_in
from nas.report.baseline import HEADINGS, unit_rows
from nas.report.baseline import summary as baseline_summary
from nas.report.document import (
    Document,
    agreement_text,
    answer,
    calls_text,
    estimate_text,
    estimator_text,
    examples,
    in_parentheses,
    judged_heading,
    judged_ms,
    limits_speed,
    metric,
    p50_ms,
    placed,
    postprocess_text,
    question,
    test_figures,
)
from nas.text import count, duration, milliseconds, percent, points

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
    """Print the errors of a profile on networks it was not fitted on, as made by
    `nas.targets.profiling.profile_summary`."""
    console = console or _stdout()
    title = f"Profile {summary['profile']} of {summary['device']}: errors on held-out networks"
    for threads in sorted({row["threads"] for row in summary["deployments"]}):
        rows = [row for row in summary["deployments"] if row["threads"] == threads]
        console.print(_profile_table(f"{title}, {threads} thread{'s' if threads > 1 else ''}", rows))
        known = [f"{row['deployment']} {row['energy_mj']:.3g} mJ" for row in rows if row["energy_mj"] is not None]
        if known:
            console.print(Text(f"energy per call: {', '.join(known)}"))
    if summary["energy_not_measured"]:
        console.print(Text(f"energy: not measured: {summary['energy_not_measured']}", style="dim"))
    if summary["disturbed"]:
        console.print(Text(f"{summary['disturbed']} measurements stayed disturbed: profile again on a quiet machine"))


def _profile_table(title: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    table = _table(
        title,
        ["deployment"],
        ["networks", "held out", "error %", "within 10 %", "constant", "MACs", "noise %", "memory MB"],
    )
    for row in rows:
        rates = (row[key] for key in ("mape", "within_10pct", "constant_within_10pct", "macs_within_10pct"))
        _add(
            table,
            row["deployment"],
            str(row["n_networks"]),
            str(row["n_heldout"]),
            *("-" if rate is None else f"{100 * rate:.1f}" for rate in rates),
            "-" if row["noise_floor_pct"] is None else f"{row['noise_floor_pct']:.1f}",
            "-" if row["memory_mb"] is None else f"{row['memory_mb']:.0f}",
        )
    return table


def print_receipt(folder: str, receipt: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what was exported, why, and what it can do (docs/export.md)."""
    console = console or _stdout()
    latency, accuracy, parity = receipt["latency_ms"], receipt["accuracy"], receipt["parity"]
    if latency is not None:
        speed = "p50 / p90 / p99 " + " / ".join(milliseconds(latency[p]) for p in ("p50", "p90", "p99")) + " ms"
        speed += in_parentheses(calls_text(receipt))
        speed += "" if latency["verdict"] == "quiet" else f" ({latency['verdict']} machine)"
    else:
        speed = f"predicted to take up to {milliseconds(receipt['predicted_ms'])} ms (not measured here)"
    name = f"{receipt['runtime']} {receipt['precision']}, {placed(receipt)}, {receipt['input']}"
    name += f", {receipt['batch']} images in a call" if receipt["batch"] > 1 else ""
    console.print(Text(f"{receipt['source']} for {name}: {speed}", style="bold"))
    if receipt["limits_text"]:
        verdict = "kept" if receipt["within_limit"] else "missed"
        margin = "" if receipt["margin_pct"] is None else f", by {abs(receipt['margin_pct']):.0f} %"
        console.print(Text(f"limit: {receipt['limits_text']}: {verdict}{margin}"))
    if parity is not None:
        agreement = f"answers agree in {percent(parity['agreement'])} of {parity['images']} {examples(receipt)}"
        differences = f"mean difference {parity['mean_abs_difference']:.1e}, largest {parity['max_abs_difference']:.1e}"
        console.print(Text(f"torch -> ONNX fp32: {agreement}, {differences}"))
    parts = {"torch": "torch", "onnx_fp32": "ONNX fp32", "deployed": "deployed"}
    parts |= {"on_device": "on the device"} if accuracy.get("on_device") is not None else {}
    validation = ", ".join(f"{text} {percent(accuracy[key])}" for key, text in parts.items())
    validation += "" if receipt.get("accuracy_on_device", True) else " (computed here, not measured on the device)"
    on_test = f"; deployed on {receipt['data']['test']} test {examples(receipt)} {percent(accuracy['test'])}"
    console.print(
        Text(f"{metric(receipt)} on {receipt['data']['val']} validation {examples(receipt)}: {validation}{on_test}")
    )
    table = _table(
        f"Deployments tried, at most {100 * receipt['max_drop']:g} points of {metric(receipt)} lost", ["deployment"],
        ["p50 ms", "p90 ms", "p99 ms", "valid. %", "MB"], ["chosen", "reason"],
    )  # fmt: skip
    for t in receipt["deployments"]:
        megabytes = "-" if t["size_bytes"] is None else f"{t['size_bytes'] / 1e6:.2f}"
        times = (milliseconds(t[key]) for key in ("p50_ms", "p90_ms", "p99_ms"))
        _add(table, t["name"], *times, points(t["accuracy"]), megabytes, "yes" if t["chosen"] else "no", t["reason"])
    console.print(table)
    console.print(Text(f"bundle: {folder}"))


def print_checks(folder: str, checks: Sequence[Mapping[str, str]], console: Console | None = None) -> None:
    """One row per check of a bundle."""
    table = _table(f"Checks of {folder}", ["check", "result", "detail"])
    for check in checks:
        _add(table, check["name"], check["status"], check["detail"])
    (console or _stdout()).print(table)


def result_tables(document: Document) -> list[RenderableType]:
    """Headline, feasibility, winners, deployments, baselines and notes, in reading order."""
    parts: list[RenderableType] = [Text(question(document)), Text(answer(document), style="bold"), Text("")]
    if document.get("baseline"):
        parts += [Text(baseline_summary(document)), Text("")]
        if any(unit["options"] for unit in document["baseline"]["units"]):
            parts.append(units_table(document))
    parts.append(feasibility_table(document))
    if document["best"]:
        parts += [winners_table(document), deployments_table(document)]
    if document["baselines"]:
        parts.append(baselines_table(document))
        parts += [Text(f"{b['name']}: {b['note']}") for b in document["baselines"] if b["note"]]
    spent = [(best["rank"], postprocess_text(best)) for best in document["best"]]
    parts += [Text(f"winner {rank}: {text}") for rank, text in spent if text]
    parts += [Text(_figures(document, network, figures)) for network, figures in test_figures(document)]
    parts += [Text(line) for line in _estimates(document)]
    parts += [Text(f"note: {note}") for note in document["notes"]]
    total = document["seconds"].get("total")
    parts.append(
        Text(
            f"{count(document['candidates_scored'])} candidates scored of {count(document['space_size'])}, "
            f"{document['candidates_evaluated']} evaluated"
            + (f", {duration(total)} in all" if total else "")
            + (f", {document['cost_usd']:.2f} USD" if document.get("cost_usd") is not None else "")
        )
    )
    parts.append(Text(f"run: {document['run_dir']}"))
    return parts


def _estimates(document: Document) -> list[str]:
    """The estimator of the candidates, its estimates of the winners, and the agreement with their accuracies."""
    winners = [
        f"winner {best['rank']}: {estimate_text(best)}; {percent((best['accuracy'] or {}).get('trained'))} when trained"
        for best in document["best"]
    ]
    return [line for line in (estimator_text(document), *winners, agreement_text(document)) if line]


MOST_FIGURES = 12
"""Largest number of a network's figures in the terminal: data may have hundreds of classes."""


def _figures(document: Document, network: str, figures: Mapping[str, float]) -> str:
    shown = ", ".join(f"{name} {percent(value)}" for name, value in list(figures.items())[:MOST_FIGURES])
    more = len(figures) - MOST_FIGURES
    return (
        f"{network} on the test {examples(document)}: {shown}{f', and {more} more in the report' if more > 0 else ''}"
    )


def feasibility_table(document: Document) -> Table:
    table = _table(
        f"Latencies of {document['space']} on {document['target']} (ms{_limit(document)})",
        ["deployment"],
        ["fastest", "median", "slowest"],
        ["can keep the limit"] if limits_speed(document) else [],
    )
    for row in document["feasibility"]:
        latencies = (milliseconds(row[key]) for key in ("min_ms", "median_ms", "max_ms"))
        verdict = ["yes" if row["satisfiable"] else "no"] if limits_speed(document) else []
        _add(table, row["deployment"], *latencies, *verdict)
    return table


def _limit(document: Document) -> str:
    return "" if document["limit_ms"] is None else f", limit {milliseconds(document['limit_ms'])}"


_NUMBERS = ("p50 ms", "limits", "valid. %", "test %", "MACs", "params")


def units_table(document: Document) -> Table:
    """What became of each unit of the network that the run began from."""
    table = _table("Units of the baseline", HEADINGS[:2], HEADINGS[2:4], HEADINGS[4:5], HEADINGS[5:])
    for row in unit_rows(document):
        _add(table, *row)
    return table


def winners_table(document: Document) -> Table:
    table = _table(f"Winners, {metric(document)} in %", ["#", "deployment"], ("input", *_NUMBERS), ["model"])
    for best in document["best"]:
        _add(table, str(best["rank"]), *_common(best), best["onnx"] or "-")
    return table


def baselines_table(document: Document) -> Table:
    table = _table(
        f"Baselines, same data and recipe, {metric(document)} in %", ["network", "deployment"], ("input", *_NUMBERS)
    )
    for baseline in document["baselines"]:
        _add(table, baseline["name"], *_common(baseline))
    return table


def deployments_table(document: Document) -> Table:
    table = _table(
        "Deployments tried", ["#", "deployment"], ["p50 ms", judged_heading(document), "valid. %"], ["chosen", "reason"]
    )
    for best in document["best"]:
        for tried in best["deployments"]:
            _add(
                table,
                str(best["rank"]),
                tried["name"],
                milliseconds(tried["p50_ms"]),
                milliseconds(judged_ms(tried)),
                points(tried["accuracy"]),
                "yes" if tried["chosen"] else "no",
                tried["reason"] or "",
            )
    return table


def _common(result: Document) -> Sequence[str]:
    """Deployment, input and the columns `_NUMBERS` of a winner or a baseline."""
    accuracy = result["accuracy"] or {}
    predicted = result["measured_latency_ms"] is None and p50_ms(result) is not None
    deployed = accuracy.get("deployed")
    return (
        name_in(result),
        result["input"],
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
