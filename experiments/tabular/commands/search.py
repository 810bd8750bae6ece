"""`search`: samplers look for accurate networks under a latency limit, and for the front, on a complete table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from experiments.tabular.commands.search_runs import MODES, TABLE_SAMPLERS, Figures, TableTask, figures, recorded_run
from experiments.tabular.layouts import AUTO, GENERIC
from experiments.tabular.table_space import VIEWS, TableSpace
from experiments.tabular.tables import ColumnSpec, TableReader, parse_specs
from search_spaces.errors import UnknownNameError, UserError

COUNTS = (20, 50, 100, 200)


@click.command("search")
@click.option("--choices", required=True, metavar="FILE.npz:COL", help="Integer decisions; every combination once.")
@click.option("--accuracy", required=True, metavar="FILE.npz:COL", help="Accuracy in points, higher is better.")
@click.option("--latency", required=True, metavar="FILE.npz:COL", help="Latency in ms.")
@click.option("--limit-quantile", default=0.5, show_default=True, help="The limit, as a quantile of the latencies.")
@click.option("--evals", default=100, show_default=True, help="Evaluations per search.")
@click.option("--seeds", default=10, show_default=True, help="Searches per sampler; figures are medians over them.")
@click.option("--first-seed", default=0, show_default=True)
@click.option("--samplers", default=",".join(TABLE_SAMPLERS), show_default=True, help="Names, separated by commas.")
@click.option("--space", type=click.Choice([AUTO, GENERIC, *VIEWS]), default=AUTO, show_default=True)
@click.option(
    "--runs", type=click.Path(file_okay=False, path_type=Path), help="Keep finished searches here, and use them."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def command(
    choices: str,
    accuracy: str,
    latency: str,
    limit_quantile: float,
    evals: int,
    seeds: int,
    first_seed: int,
    samplers: str,
    space: str,
    runs: Path | None,
    as_json: bool,
) -> None:
    """Compare samplers on a table of networks.

    Example: search --choices nb201_archs.npz:ops --accuracy nb201_acc_cifar10.npz:acc200_test
    --latency nb201_latency.npz:pixel3 --samplers surrogate,random --json
    """
    names = [name.strip() for name in samplers.split(",")]
    for name in names:
        if name not in TABLE_SAMPLERS:
            raise UnknownNameError("sampler", name, TABLE_SAMPLERS)
    for option, value in (("--evals", evals), ("--seeds", seeds)):
        if value < 1:
            raise UserError(f"{option} {value} is no positive number", "give at least 1")
    task = load_task(choices, accuracy, latency, limit_quantile, space)
    result = compare(task, names, range(first_seed, first_seed + seeds), evals, runs)
    click.echo(json.dumps(result, indent=2) if as_json else _as_text(result))


def load_task(choices: str, accuracy: str, latency: str, limit_quantile: float, space: str = AUTO) -> TableTask:
    """The table behind three columns, named as on the command line; raises UserError where they do not fit."""
    if not 0 < limit_quantile <= 1:
        raise UserError(f"--limit-quantile {limit_quantile:g} is no share", "give a number above 0, at most 1")
    reader = TableReader()
    table = TableSpace.of_table(reader.matrix(parse_specs(choices)), space)
    latency_spec = _one(latency)
    latency_ms = reader.vector(latency_spec)
    limit_ms = float(np.quantile(latency_ms, limit_quantile))
    return TableTask(latency_spec.label, table, reader.vector(_one(accuracy)), latency_ms, limit_ms)


def compare(
    task: TableTask, samplers: Sequence[str], seeds: Sequence[int], evals: int, runs: Path | None = None
) -> dict[str, Any]:
    """The command's document: figures by sampler and by number of evaluations."""
    counts = sorted({*(c for c in COUNTS if c < evals), evals})
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in samplers:
        limit_runs, front_runs = ([recorded_run(runs, task, name, s, evals, mode) for s in seeds] for mode in MODES)
        found[name] = {str(c): asdict(figures(task, limit_runs, front_runs, c)) for c in counts}
    return {
        "command": "search",
        "space": task.space.name,
        "networks": task.space.size,
        "latency": task.name,
        "limit_ms": task.limit_ms,
        "best_accuracy": task.best_accuracy,
        "hypervolume_corner": {"accuracy": task.corner[0], "latency_ms": float(np.exp(-task.corner[1]))},
        "seeds": list(seeds),
        "samplers": found,
    }


def _one(text: str) -> ColumnSpec:
    specs = parse_specs(text)
    if len(specs) != 1:
        raise UserError(f"{text!r} names {len(specs)} columns", "name one")
    return specs[0]


def _as_text(result: dict[str, Any]) -> str:
    lines = [
        f"{result['latency']}: limit {result['limit_ms']:.4g} ms, best accuracy within it "
        f"{result['best_accuracy']:.2f}, {len(result['seeds'])} searches each",
        f"{'sampler':<12}{'evaluations':>12}{'regret':>9}{'hypervolume':>13}{'violations':>12}{'s / proposal':>14}",
    ]
    for name, by_count in result["samplers"].items():
        for count, row in by_count.items():
            one = Figures(**row)
            lines.append(
                f"{name:<12}{count:>12}{one.regret:>9.3f}{one.hypervolume:>13.3f}{one.violations:>12.1f}"
                f"{one.seconds_per_proposal:>14.3f}"
            )
    return "\n".join(lines)
