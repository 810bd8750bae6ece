"""`transfer`: other devices' whole tables and n rows of a new device predict the new device's other rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from experiments.tabular.baselines import ConstantLatency
from experiments.tabular.commands.latency import SPACES
from experiments.tabular.commands.runs import DeviceTable, Protocol, judge_device, print_result, read_devices, summarise
from experiments.tabular.features import TableEncoding
from experiments.tabular.latency import TableLatencyPredictor
from experiments.tabular.layouts import AUTO, table_encoding
from experiments.tabular.tables import ColumnSpec, TableReader, parse_specs
from experiments.tabular.transfer import TRANSFER_PREDICTORS
from search_spaces.errors import UserError


@click.command("transfer")
@click.option("--choices", required=True, metavar="FILE.npz:COL[,COL]", help="Choices of the sources' rows.")
@click.option(
    "--sources", required=True, metavar="FILE.npz:COL,FILE.npz:COL,...", help="Other devices' latencies in ms."
)
@click.option(
    "--choices-target", metavar="FILE.npz:COL[,COL]", help="Choices of the new device's rows; default --choices."
)
@click.option(
    "--y", "target", required=True, metavar="FILE.npz:COL", help="The new device; A,B: two, each in its turn."
)
@click.option("--n", default=10, show_default=True, help="Measurements on the new device.")
@click.option("--seeds", default=5, show_default=True, help="Random splits; figures are their means.")
@click.option(
    "--space", type=SPACES, default=AUTO, show_default=True, help="Layout of the choices; auto: by their values."
)
@click.option("--drop-below", default=0.0, show_default=True, help="Drop rows below this part of the median latency.")
@click.option("--max-test", type=click.IntRange(min=1), help="Judge at most so many test rows (a quick look).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def command(
    choices: str,
    sources: str,
    choices_target: str | None,
    target: str,
    n: int,
    seeds: int,
    space: str,
    drop_below: float,
    max_test: int | None,
    as_json: bool,
) -> None:
    """Predict a new device's latency from other devices' tables and N measurements.

    A target that is among the sources is left out of them, so naming the same list twice leaves one device out in turn.

    Example: transfer --choices a.npz:ops --sources a.npz:gpu,cpu --choices-target b.npz:ops --y b.npz:phone --n 10
    """
    protocol = Protocol(n, seeds, drop_below, max_test)
    print_result(judge_transfer(choices, sources, target, protocol, choices_target, space), as_json)


def judge_transfer(
    choices: str, sources: str, target: str, protocol: Protocol, choices_target: str | None = None, space: str = AUTO
) -> dict[str, Any]:
    """The command's document; arguments as on the command line.

    Raises:
        UserError: a column or a file that is not there or does not fit.
    """
    reader = TableReader()
    source_rows = reader.matrix(parse_specs(choices))
    target_rows = reader.matrix(parse_specs(choices_target)) if choices_target else source_rows
    if source_rows.shape[1] != target_rows.shape[1]:
        raise UserError(f"sources have {source_rows.shape[1]} decisions, the target has {target_rows.shape[1]}")
    source_columns = dict(read_devices(reader, parse_specs(sources), source_rows))
    encoding = table_encoding(np.concatenate([source_rows, target_rows]), space)
    devices = []
    for spec, latency_ms in read_devices(reader, parse_specs(target), target_rows):
        others = {other: column for other, column in source_columns.items() if other != spec}
        table = _table(encoding, source_rows, others, DeviceTable(spec, target_rows, latency_ms, {}))
        devices.append({**judge_device(table, protocol), "sources": len(others)})
    return summarise("transfer", devices, protocol, space=encoding.name)


def _table(
    encoding: TableEncoding,
    source_rows: NDArray[np.float64],
    others: dict[ColumnSpec, NDArray[np.float64]],
    target: DeviceTable,
) -> DeviceTable:
    """The target's table with its predictors: transfers, and what the new device's rows alone would give."""
    if not others:
        raise UserError("no source device is left", "name at least one --sources column that is not the target")
    columns = np.column_stack(list(others.values()))
    complete = (np.isfinite(columns) & (columns > 0)).all(1)
    if not complete.any():
        raise UserError("no row has a positive latency on every source device")
    factories = {
        name: partial(factory, encoding, source_rows[complete], columns[complete])
        for name, factory in TRANSFER_PREDICTORS.items()
    }
    return DeviceTable(
        spec=target.spec,
        choices=target.choices,
        latency_ms=target.latency_ms,
        factories={
            **factories,
            "no_transfer": partial(TableLatencyPredictor, encoding),
            "constant": partial(ConstantLatency, encoding),
        },
    )
