"""`nas bench`."""

from pathlib import Path
from typing import Any

import click

from nas.cli.bench_load import OPTIONS, bench_load, load_options, refuse_load_options
from nas.cli.shell import Shell
from nas.cli.types import Calls, Device


def _or_none(context: click.Context, parameter: click.Parameter, value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """An option that may be repeated and was not given means: no restriction."""
    return value or None


@click.command(short_help="Measure networks side by side.")
@click.argument("models", nargs=-1, metavar="MODEL...")
@click.option("--target", default="local", show_default=True, help="The device: only this machine can be measured.")
@click.option("--device", "devices", type=Device(), multiple=True, help="cpu or cuda:N (repeatable).  [default: cpu]")
@click.option("--runtime", "runtimes", multiple=True, callback=_or_none, help="Only this runtime (repeatable).")
@click.option("--precision", "precisions", multiple=True, callback=_or_none, help="Only this precision (repeatable).")
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    help="Images per call (repeatable).  [default: 1; with --full 1, 8 and 32]",
)
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    help="Up to so many calls at once; 1: none.  [default: 1; with --full the threads]",
)
@click.option(
    "--calls",
    type=Calls(),
    multiple=True,
    callback=_or_none,
    help="Also time calls in this pattern (repeatable); continuous: no other.  [default: 20/s and idle]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a network.  [default: all]")
@click.option(
    "--resolution",
    type=click.IntRange(min=1),
    help="Input height = width of files that leave it open, and of torchvision networks.  [default: 224]",
)
@click.option(
    "--sessions", type=click.IntRange(min=1), default=3, show_default=True, help="Fresh sessions, or fresh servers."
)
@click.option(
    "--operators", type=click.IntRange(min=0), help="Slowest operators; 0: none.  [default: 0; with --full 5]"
)
@click.option("--blocks", is_flag=True, help="Also show how long each block of a network takes, by deployment.")
@click.option("--roofline", is_flag=True, help="Also what this machine can do at best, for `nas compare`.")
@click.option("--full", is_flag=True, help="Also larger batches, several calls at once, and the slowest operators.")
@load_options
@click.option("--plot", type=click.Path(path_type=Path), help="Also draw it: FILE.html or FILE.png.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def bench(
    context: click.Context,
    /,
    *,
    models: tuple[str, ...],
    batches: tuple[int, ...],
    streams: int | None,
    operators: int | None,
    calls: tuple[str, ...] | None,
    full: bool,
    roofline: bool,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Measure networks side by side on this machine: latency and memory of single calls, and with --full more.

    A MODEL is an ONNX file, a bundle's folder, NAME.network.json, RUN#k (the k-th network of a run: its winners, then
    its other finalists by accuracy; RUN alone is RUN#1) or torchvision:NAME (untrained).
    All are measured in turns, in several fresh sessions, in every installed runtime and precision. What cannot be
    measured is said with its reason, and the others are measured all the same.

    \b
    Example:
      nas bench runs/imagenette#1 torchvision:resnet50 --resolution 128
      nas bench model.onnx runs/imagenette#1 --full --plot bench.html
      nas bench torchvision:resnet18 --resolution 128 --blocks
      nas bench model.onnx --runtime openvino --precision int8 --batch 1 --batch 16

    With --serve each MODEL is a bundle, which is served here and put under load; with --url a server is that runs
    already, and a MODEL says which bundle's answers are expected of it.

    \b
    Example:
      nas bench --serve runs/imagenette#1 --images ./photos --clients 20,30,40,50 --slo-ms 20
      nas bench --url http://127.0.0.1:8000/v2/models/resnet --images ./photos --rate 50,100
    """
    load = {name: options.pop(name) for name in OPTIONS}
    if load["serve"] or load["urls"]:
        threads, sessions = options["threads"], options["sessions"]
        context.exit(
            bench_load(
                context, models, load,
                batches=batches, threads=threads, sessions=sessions, plot=plot, as_json=as_json, quiet=quiet,
            )
        )  # fmt: skip
    refuse_load_options(context)
    if not models:
        raise click.UsageError("Missing argument 'MODEL...'.")
    from nas.bench.bench import FULL_BATCHES, FULL_OPERATORS, OTHER_CALLS, BenchConfig, run_bench
    from nas.bench.figure import check_plot_path, write_plot
    from nas.progress import progress_for
    from nas.report.document import to_json

    if plot is not None:
        check_plot_path(plot)
    command = context.ensure_object(Shell).command
    config = BenchConfig(
        models=models,
        command=command,
        batches=batches or (FULL_BATCHES if full else (1,)),
        streams=streams if streams is not None or full else 1,
        calls=calls or OTHER_CALLS,
        operators=operators if operators is not None else FULL_OPERATORS if full else 0,
        **options,
    )
    progress = progress_for(quiet=quiet)
    document = run_bench(config, progress)
    if roofline:
        from nas.compare.roofline import measured_roofline

        with progress.stage("measuring the machine's ceilings"):
            document["roofline"] = measured_roofline(config)
    if as_json:
        click.echo(to_json(document))
    else:
        from nas.bench.tables import print_bench

        print_bench(document)
    if plot is not None:
        write_plot(document, plot)  # last: what was measured is not lost where it fails
    context.exit(0 if any(cell["not_measured"] is None for cell in document["cells"]) else 1)
