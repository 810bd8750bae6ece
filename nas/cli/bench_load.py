"""`nas bench --serve` and `nas bench --url`: load on a server."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nas.cli.shell import Shell, refuse_others
from nas.cli.types import Positive


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers with commas between them: `20,30,40`."""

    name = "numbers"

    def __init__(self, what: str, example: str, *, whole: bool = False) -> None:
        self._what, self._example, self._whole = what, example, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        form = r"\d{1,9}" if self._whole else r"\d{1,9}(\.\d{1,9})?"
        texts = [text.strip() for text in str(value).split(",")]
        numbers = [float(text) for text in texts if re.fullmatch(form, text, re.ASCII)]
        if len(numbers) != len(texts) or not all(number > 0 for number in numbers):
            from nas.errors import UserError

            kind = "whole numbers" if self._whole else "numbers"
            raise UserError(f"the {self._what} {value!r} are no {kind} above 0", f"write them like {self._example}")
        return tuple(int(number) if self._whole else number for number in numbers)


OPTIONS: Mapping[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "serve": click.option("--serve", is_flag=True, help="Serve each MODEL, a bundle, and put load on it."),
    "urls": click.option("--url", "urls", multiple=True, help="Put load on a server that runs already (repeatable)."),
    "clients": click.option(
        "--clients",
        type=Numbers("clients", "--clients 20,30", whole=True),
        help="Load: so many clients that wait for their answers.  [default: 20,30,40,50; with --rate none]",
    ),
    "rates": click.option(
        "--rate", "rates", type=Numbers("rates", "--rate 50,100"), help="Load: requests per second at random times."
    ),
    "slo_ms": click.option(
        "--slo-ms",
        type=Positive("ms", "limit on latency", "--slo-ms 20"),
        help="Load: search the largest rate at which 99 % are answered within so many ms.",
    ),
    "images": click.option(
        "--images", type=click.Path(path_type=Path), help="Load: folder of images.  [default: the bundle's sample]"
    ),
    "send": click.option(
        "--send",
        type=click.Choice(["file", "pixels", "floats"]),
        help="Load: what a request carries.  [default: file, where that is taken]",
    ),
    "replicas": click.option(
        "--replicas",
        type=Numbers("replicas", "--replicas 1,2", whole=True),
        help="Load: processes of a server; several numbers show how it scales.  [default: as many as fit]",
    ),
    "seconds": click.option(
        "--seconds",
        type=Positive("s", "seconds of a trial", "--seconds 10"),
        default=10.0,
        show_default=True,
        help="Load: of one trial.",
    ),
    "prices": click.option("--prices", type=click.Path(path_type=Path), help="Load: YAML file with machines' prices."),
    "latencies": click.option(
        "--latencies", type=click.Path(path_type=Path), help="Load: write every latency to this parquet file."
    ),
}
"""Options of a load test, by the name of their parameter."""
SHARED = ("models", "--threads", "--batch", "--sessions", "--plot", "--json", "--quiet")
"""Of `nas bench`, that mean the same for a load test; `--sessions` are fresh servers then."""
_FIRST_NAMES = {"urls": "--url", "rates": "--rate", "slo_ms": "--slo-ms"}


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(list(OPTIONS.values())):
        command = option(command)
    return command


def option_name(parameter: str) -> str:
    """`--slo-ms` of `slo_ms`."""
    return _FIRST_NAMES.get(parameter, f"--{parameter}")


def refuse_load_options(context: click.Context) -> None:
    """Raises `click.UsageError` where an option of a load test was typed, but nothing that load is put on."""
    for name in OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option_name(name)} is of load tests: give --serve or --url with it.")


def bench_load(
    context: click.Context,
    models: tuple[str, ...],
    load: Mapping[str, Any],
    *,
    batches: tuple[int, ...],
    threads: int | None,
    sessions: int,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Make the load, print what came of it, and return the exit code."""
    asked = "--serve" if load["serve"] else "--url"
    if load["serve"] and load["urls"]:
        raise click.UsageError("--serve starts a server, and --url names one that runs: give one of them.")
    refuse_others(
        context, asked, [*SHARED, *map(option_name, load)], "a load test measures whole servers, not single deployments"
    )
    if load["urls"]:
        given = {"--replicas": load["replicas"], "--threads": threads, "--batch": batches}
        fixed = [name for name, value in given.items() if value]
        if fixed:
            raise click.UsageError(f"{fixed[0]} is of servers that are started here; the one at --url runs already.")

    from nas.bench.figure import check_plot_path
    from nas.loadtest.config import LoadConfig
    from nas.loadtest.run import run_load_test
    from nas.progress import progress_for
    from nas.report.document import to_json

    if plot is not None:
        check_plot_path(plot)
    config = LoadConfig(
        bundles=models,
        urls=load["urls"],
        clients=load["clients"] or (),
        rates=load["rates"] or (),
        slo_ms=load["slo_ms"],
        images=load["images"],
        send=load["send"],
        replicas=load["replicas"] or (),
        threads=threads,
        batches=batches,
        seconds=load["seconds"],
        runs=sessions,
        prices=load["prices"],
        latencies=load["latencies"],
        command=context.ensure_object(Shell).command,
    )
    document = run_load_test(config, progress_for(quiet=quiet))
    if as_json:
        click.echo(to_json(document))
    else:
        from nas.loadtest.tables import print_load_test

        print_load_test(document)
    if plot is not None:
        from nas.loadtest.figure import write_load_plot

        write_load_plot(document, plot)
    return 0 if any(server["closed"] or server["open"] or server["trials"] for server in document["servers"]) else 1
