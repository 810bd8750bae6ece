"""What the `latency` and `transfer` commands share: seeds, devices, timing, and the output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from experiments.tabular.tables import ColumnSpec, Split, TableReader, average, judge, random_split, usable_rows
from predictors.base import LatencyPredictor
from search_spaces.errors import UserError

CONSTANT = "constant"
HEADLINE = ("mape", "within_5pct", "within_10pct", "spearman", "kendall")


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a device is judged: n training rows, seeds 0 .. n_seeds-1, and which rows count."""

    n: int
    n_seeds: int
    drop_below: float = 0.0
    max_test: int | None = None

    def __post_init__(self) -> None:
        if self.n_seeds < 1:
            raise UserError(f"{self.n_seeds} seeds are too few", "use --seeds 1 or more")


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """One column of latencies with the choices of its rows, and the predictors that are judged on it."""

    spec: ColumnSpec
    choices: NDArray[np.float64]
    latency_ms: NDArray[np.float64]
    factories: Mapping[str, Callable[[], LatencyPredictor]]
    groups: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if len(self.choices) != len(self.latency_ms):
            raise UserError(
                f"{self.spec.label!r} has {len(self.latency_ms)} rows, the choices have {len(self.choices)}",
                "rows are aligned by number: name the choices of the same file",
            )


def judge_device(table: DeviceTable, protocol: Protocol) -> dict[str, Any]:
    """Figures of every predictor on one device, means over seeds."""
    rows = usable_rows(table.latency_ms, protocol.drop_below)
    methods: dict[str, dict[str, float]] = {}
    splits = [random_split(rows, protocol.n, s, table.groups, protocol.max_test) for s in range(protocol.n_seeds)]
    for name, factory in table.factories.items():
        started = time.perf_counter()
        predictor = factory()
        prepare_seconds = time.perf_counter() - started
        figures = [_judge_split(predictor, table, split) for split in splits]
        methods[name] = {**average(figures), "prepare_seconds": prepare_seconds}
    return {
        "y": f"{table.spec.path.name}:{table.spec.label}",
        "rows": len(rows),
        "dropped": len(table.latency_ms) - len(rows),
        "methods": methods,
    }


def summarise(command: str, devices: Sequence[dict[str, Any]], protocol: Protocol, **facts: object) -> dict[str, Any]:
    """The document that is printed: the first predictor's figures on top, everything else below."""
    names = list(devices[0]["methods"])
    methods = {name: average([device["methods"][name] for device in devices]) for name in names}
    headline = {key: methods[names[0]][key] for key in HEADLINE}
    return {
        **headline,
        "constant_within_10pct": methods[CONSTANT]["within_10pct"],
        "coverage_90pct": methods[names[0]]["coverage_90pct"],
        "command": command,
        "predictor": names[0],
        "n": protocol.n,
        "seeds": protocol.n_seeds,
        **facts,
        "rows": sum(device["rows"] for device in devices),
        "dropped": sum(device["dropped"] for device in devices),
        "methods": methods,
        "devices": list(devices),
    }


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """One JSON document, or a table for people; on stdout."""
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    n_devices = len(result["devices"])
    click.echo(
        f"{result['command']}: n = {result['n']}, {result['seeds']} seeds, {n_devices} device(s), {result['space']}"
    )
    click.echo(
        f"{'predictor':<12}{'MAPE %':>9}{'<=5 %':>8}{'<=10 %':>8}{'Spearman':>10}{'Kendall':>9}{'90 % cover':>12}"
    )
    for name, row in result["methods"].items():
        click.echo(
            f"{name:<12}{row['mape']:>9.2f}{row['within_5pct']:>8.1f}{row['within_10pct']:>8.1f}"
            f"{row['spearman']:>10.3f}{row['kendall']:>9.3f}{row['coverage_90pct']:>12.1f}"
        )
    if result["dropped"]:
        click.echo(f"{result['dropped']} rows without a usable latency were dropped")


def read_devices(
    reader: TableReader, specs: Sequence[ColumnSpec], choices: NDArray[np.float64]
) -> list[tuple[ColumnSpec, NDArray[np.float64]]]:
    """Latency columns, each checked against the number of rows of the choices."""
    columns = [(spec, reader.vector(spec)) for spec in specs]
    for spec, latency in columns:
        if len(latency) != len(choices):
            raise UserError(
                f"{spec.label!r} of {spec.path.name} has {len(latency)} rows, the choices have {len(choices)}",
                "rows are aligned by number: name the choices of the same file",
            )
    return columns


def _judge_split(predictor: LatencyPredictor, table: DeviceTable, split: Split) -> dict[str, float]:
    started = time.perf_counter()
    predictor.fit(table.choices[split.train], table.latency_ms[split.train])
    fitted = time.perf_counter()
    prediction = predictor.predict(table.choices[split.test])
    seconds = time.perf_counter() - fitted
    figures = judge(prediction.mean, prediction.std, table.latency_ms[split.test])
    return {**figures, "fit_seconds": fitted - started, "predicted_rows_per_second": len(split.test) / seconds}
