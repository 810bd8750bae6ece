"""`latency`: a predictor learns from n random rows of a device's table and is judged on all the other rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from experiments.tabular.commands.runs import DeviceTable, Protocol, judge_device, print_result, read_devices, summarise
from experiments.tabular.latency import LATENCY_PREDICTORS
from experiments.tabular.layouts import AUTO, GENERIC, LAYOUTS, table_encoding
from experiments.tabular.tables import TableReader, parse_specs

SPACES = click.Choice([AUTO, GENERIC, *LAYOUTS])


@click.command("latency")
@click.option("--choices", required=True, metavar="FILE.npz:COL[,COL]", help="Integer decisions or numeric features.")
@click.option("--y", "target", required=True, metavar="FILE.npz:COL", help="Latency in ms; A+B sums, A,B: two devices.")
@click.option("--n", default=20, show_default=True, help="Training rows.")
@click.option("--seeds", default=5, show_default=True, help="Random splits; figures are their means.")
@click.option(
    "--space", type=SPACES, default=AUTO, show_default=True, help="Layout of the choices; auto: by their values."
)
@click.option(
    "--groups", metavar="FILE.npz:COL", help="Identity of rows: a test row never shares it with a training row."
)
@click.option("--drop-below", default=0.0, show_default=True, help="Drop rows below this part of the median latency.")
@click.option("--max-test", type=click.IntRange(min=1), help="Judge at most so many test rows (a quick look).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def command(
    choices: str,
    target: str,
    n: int,
    seeds: int,
    space: str,
    groups: str | None,
    drop_below: float,
    max_test: int | None,
    as_json: bool,
) -> None:
    """Predict latency from N measurements.

    Example: latency --choices fbnet.npz:ops --y fbnet.npz:pixel3 --n 20 --seeds 5 --json
    """
    print_result(judge_latency(choices, target, Protocol(n, seeds, drop_below, max_test), space, groups), as_json)


def judge_latency(
    choices: str, target: str, protocol: Protocol, space: str = AUTO, groups: str | None = None
) -> dict[str, Any]:
    """The command's document; arguments as on the command line.

    Raises:
        UserError: a column or a file that is not there or does not fit.
    """
    reader = TableReader()
    matrix = reader.matrix(parse_specs(choices))
    identity = reader.array(parse_specs(groups)[0].path, parse_specs(groups)[0].label) if groups else None
    encoding = table_encoding(matrix, space)
    factories = {name: partial(factory, encoding) for name, factory in LATENCY_PREDICTORS.items()}
    devices = [
        judge_device(DeviceTable(spec, matrix, latency_ms, factories, identity), protocol)
        for spec, latency_ms in read_devices(reader, parse_specs(target), matrix)
    ]
    return summarise("latency", devices, protocol, space=encoding.name)
