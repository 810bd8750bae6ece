"""`nas search`."""

from pathlib import Path
from typing import Any

import click

from nas.cli.shell import Shell
from nas.cli.types import LatencyMs, PercentagePoints, Seconds


def _or_none(context: click.Context, parameter: click.Parameter, value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """An option that may be repeated and was not given means: no restriction."""
    return value or None


@click.command(short_help="Search the best network under a latency limit.")
@click.option("--target", default="local", show_default=True, help="The device; `nas targets` lists them.")
@click.option("--latency-ms", type=LatencyMs(), required=True, help="The limit for one image, in milliseconds.")
@click.option(
    "--data",
    default="digits",
    show_default=True,
    help="A named data set, a folder with one sub-folder of images per class, an archive of one, or an .npz file.",
)
@click.option("--space", default="mixed", show_default=True, help="What may be built: mobile, dense or mixed.")
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(),
    default="10m",
    show_default=True,
    help="Time for everything: measuring, searching and training (90s, 30m, 4h).",
)
@click.option(
    "--max-drop",
    type=PercentagePoints(),
    default="1.0",
    show_default=True,
    help="Accuracy that a faster precision may cost, in percentage points.",
)
@click.option("--top", type=click.IntRange(1, 5), default=1, show_default=True, help="How many winners to deliver.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the deployed network.  [default: all]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same proposals.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run's folder; the same command on it resumes.  [default: runs/<task>-<target>-<limit>]",
)
@click.option("--runtime", "runtimes", multiple=True, callback=_or_none, help="Allow only this runtime (repeatable).")
@click.option(
    "--precision", "precisions", multiple=True, callback=_or_none, help="Allow only this precision (repeatable)."
)
@click.option(
    "--resolution",
    "resolutions",
    type=click.IntRange(min=1),
    multiple=True,
    callback=_or_none,
    help="Allow only this input height = width in pixels (repeatable).",
)
@click.option(
    "--baselines/--no-baselines", default=True, show_default=True, help="Also train random and well-known networks."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def search(context: click.Context, /, *, as_json: bool, quiet: bool, **options: Any) -> None:
    """Search the most accurate network that keeps a latency limit on a target.

    The winner is trained, exported, quantised where that pays, and measured again from its exported file in freshly
    loaded sessions: only a network that keeps the limit in each of them is accepted (exit code 3 otherwise).

    \b
    Example:
      nas search --target local --latency-ms 10 --data digits --budget 3m
      nas search --target xeon-spr --latency-ms 4 --data ./photos --budget 30m --json > result.json
    """
    from nas.controller.config import SearchConfig
    from nas.controller.search import run_search
    from nas.progress import progress_for
    from nas.report.document import to_json

    shell = context.ensure_object(Shell)
    shell.resume = shell.command
    result = run_search(SearchConfig(**options, command=shell.command), progress_for(quiet=quiet))
    if as_json:
        click.echo(to_json(result.document))
    else:
        from nas.report.tables import print_result

        print_result(result.document)
    context.exit(result.exit_code)
