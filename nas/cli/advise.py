"""`nas advise`."""

from pathlib import Path
from typing import Any

import click

from nas.cli.shell import Shell
from nas.cli.types import Device


@click.command(short_help="Show where a network's time goes, and what would save some of it.")
@click.argument("reference", metavar="REF")
@click.option("--against", metavar="DEPLOYMENT", help="Also in this deployment, side by side: openvino-int8.")
@click.option("--runtime", help="Runtime that the blocks are timed in.  [default: a bundle's own, else the fastest]")
@click.option("--precision", help="Likewise, the precision.")
@click.option("--device", type=Device(), default="cpu", show_default=True, help="cpu or cuda:N.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Images per call.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the network.  [default: all]")
@click.option(
    "--resolution",
    type=click.IntRange(min=1),
    help="Input height = width of what leaves it open.  [default: 224]",
)
@click.option(
    "--target", default="local", show_default=True, help="Whose profile predicts what changes save; see `nas targets`."
)
@click.option("--apply", type=click.IntRange(min=0), default=0, help="Build and measure so many of the best changes.")
@click.option("--sessions", type=click.IntRange(min=1), default=3, show_default=True, help="Fresh sessions.")
@click.option("--plot", type=click.Path(path_type=Path), help="Also draw it: FILE.html or FILE.png.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def advise(
    context: click.Context, /, *, reference: str, plot: Path | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Show where the time of a network goes on this machine, block by block, and what would save some of it.

    REF is a bundle's folder, an ONNX file, RUN#k (the k-th network of a run), NAME.network.json, ARCH.json,
    torchvision:NAME or timm:NAME (untrained). Blocks are timed by the runtime's own profiler. Of a network of a search
    space, every change of one decision is predicted by the latency model of this machine, or of --target. Nothing is
    said of what a change does to the accuracy.

    \b
    Example:
      nas advise runs/photos#1
      nas advise torchvision:resnet50 --precision fp32 --against openvino-int8
      nas advise runs/photos#1 --apply 3 --plot advice.html
    """
    from nas.advice.advise import AdviseConfig, run_advise
    from nas.advice.figure import write_plot
    from nas.bench.figure import check_plot_path
    from nas.progress import progress_for
    from nas.report.document import to_json

    if plot is not None:
        check_plot_path(plot)
    config = AdviseConfig(reference=reference, command=context.ensure_object(Shell).command, **options)
    document = run_advise(config, progress_for(quiet=quiet))
    if as_json:
        click.echo(to_json(document))
    else:
        from nas.advice.tables import print_advice

        print_advice(document)
    if plot is not None:
        write_plot(document, plot)  # last: what was measured is not lost where it fails
