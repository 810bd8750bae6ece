"""`nas profile`."""

from pathlib import Path
from typing import Any

import click

from nas.cli.shell import Shell
from nas.cli.types import Seconds


@click.command(short_help="Measure this machine, so that searches can predict its latencies.")
@click.argument("name", default="local")
@click.option("--budget", "budget_s", type=Seconds(), default="15m", show_default=True, help="Time for measuring.")
@click.option("--networks", type=click.IntRange(min=12), default=240, show_default=True, help="Stop after this many.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the measured networks.  [default: all]")
@click.option("--runtime", "runtimes", multiple=True, help="Measure only this runtime (repeatable).")
@click.option("--precision", "precisions", multiple=True, help="Measure only this precision (repeatable).")
@click.option("--resolution", "resolutions", type=click.IntRange(min=1), multiple=True, help="Only this resolution.")
@click.option("--out", type=click.Path(path_type=Path), help="The profile's file.  [default: the user's profiles]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def profile(
    context: click.Context, /, *, name: str, out: Path | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Measure random networks on this machine and keep their latencies as the profile NAME.

    Leave the machine alone meanwhile. An interrupted profile is continued by the same command; more networks make the
    predictions better. A search for target NAME then uses it.

    \b
    Example:
      nas profile local --budget 15m
      nas profile my-server --runtime onnxruntime --precision int8 --out my-server.json
    """
    from nas.progress import progress_for
    from nas.report.document import to_json
    from nas.targets.profiling import profile_summary, profile_this_host

    shell = context.ensure_object(Shell)
    shell.resume = shell.command
    made = profile_this_host(name, out, progress=progress_for(quiet=quiet), **options)
    if as_json:
        click.echo(to_json(profile_summary(made)))
    else:
        from nas.report.tables import print_profile

        print_profile(profile_summary(made))
