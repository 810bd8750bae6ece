"""The result of a fine-tuning as tables for a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nas.text import count, duration, milliseconds, percent, points

PLAIN_WIDTH = 100


def print_finetuning(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the document of `nas.finetune.run.finetune` on stdout (or `console`)."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, highlight=False, width=PLAIN_WIDTH)
    title = f"Recipe {document['recipe']} on {document['data']['name']}: {document['metric']} in %"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for heading in ("#", "start", "kept"):
        table.add_column(heading)
    for heading in ("before", "after", "test", "epochs", "params", "images/s", "waiting", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in document["networks"]:
        accuracy = row["accuracy"]
        table.add_row(
            str(row["rank"]),
            row["start"],
            row["delivered"],
            points(accuracy["before"]),
            points(accuracy["after"]),
            points(accuracy["test"]),
            str(row["epochs"]),
            count(row["params"]),
            "-" if row["images_per_s"] is None else f"{row['images_per_s']:.0f}",
            percent(row["data_wait_share"]),
            duration(row["seconds"]),
        )
    console.print(table)
    judged = f"before and after: validation {document['data']['examples']}"
    console.print(Text(f"{judged}; waiting: for data, of the training time", style="dim"))
    for row in document["networks"]:
        if row["qat"] is not None:
            _print_quantised(row, console)
        if document["out"] is not None:
            console.print(Text(f"network {row['rank']}: {row['checkpoint']}" + (" (read)" if row["reused"] else "")))
    if document["smoke"]:
        console.print(Text("smoke test: two batches of each stage ran; nothing was kept, the figures mean nothing"))


def _print_quantised(row: Mapping[str, Any], console: Console) -> None:
    # No title of the table, which would be broken to the table's width.
    console.print(Text(f"Network {row['rank']} in int8, quantised after training or in training", style="bold"))
    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("deployment", "quantised"):
        table.add_column(heading)
    for heading in ("accuracy %", "p50 ms"):
        table.add_column(heading, justify="right")
    for tried in row["qat"]["deployments"]:
        table.add_row(
            tried["deployment"], tried["quantised"], points(tried["val_accuracy"]), milliseconds(tried["p50_ms"])
        )
    console.print(table)
