"""`nas profile`."""

import time
from pathlib import Path
from typing import Any

import click

from nas.cli.shell import Shell, refuse_others
from nas.cli.types import Calls, Device, Seconds, only

_TO_EXPORT = ("name", "--networks", "--space", "--batch", "--runtime", "--precision", "--resolution", "--quiet")
_TO_IMPORT = ("name", "--out", "--json", "--quiet")


@click.command(short_help="Measure this machine, so that searches can predict its latencies.")
@click.argument("name", default="local")
@click.option("--budget", "budget_s", type=Seconds(), default="15m", show_default=True, help="Time for measuring.")
@click.option(
    "--networks", type=click.IntRange(5, 10_000), default=240, show_default=True, help="Stop after this many."
)
@click.option(
    "--space",
    "spaces",
    multiple=True,
    help="Only this space (repeatable), as in nas search.  [default: mixed, mobile, dense, compact]",
)
@click.option("--device", "devices", type=Device(), multiple=True, help="cpu or cuda:N (repeatable).  [default: cpu]")
@click.option("--threads", type=click.IntRange(min=1), multiple=True, help="Threads (repeatable).  [default: all]")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Images per call, also of what is deployed.",
)
@click.option("--runtime", "runtimes", multiple=True, help="Measure only this runtime (repeatable).")
@click.option("--precision", "precisions", multiple=True, help="Measure only this precision (repeatable).")
@click.option(
    "--resolution",
    "allowed",
    type=click.IntRange(min=1),
    multiple=True,
    callback=only("resolution"),
    help="Only this resolution.",
)
@click.option(
    "--calls",
    type=Calls(),
    multiple=True,
    help="Also time calls in this pattern (repeatable): a rate such as 20/s, or idle.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The profile's file.  [default: the user's profiles]")
@click.option("--export-kit", type=click.Path(path_type=Path), help="Do not measure: write a kit for another device.")
@click.option("--import-kit", type=click.Path(path_type=Path), help="Make the profile from what a kit measured.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def profile(
    context: click.Context,
    /,
    *,
    name: str,
    out: Path | None,
    export_kit: Path | None,
    import_kit: Path | None,
    as_json: bool,
    quiet: bool,
    calls: tuple[str, ...],
    **options: Any,
) -> None:
    """Measure random networks on this machine and keep their latencies as the profile NAME.

    Leave the machine alone meanwhile. An interrupted profile is continued by the same command; more networks make the
    predictions better. A search for target NAME then uses it.

    Networks of another space join those that a profile of the same name holds: --space detect adds detectors. A search
    for a device elsewhere needs a profile that knows the blocks of its space.

    A device without torch is measured by a kit: a zip of networks and one script that needs only numpy and
    onnxruntime. Run it there and bring its result back.

    \b
    Example:
      nas profile local --budget 15m
      nas profile local --space detect
      nas profile local --calls 20/s --calls idle
      nas profile local --device cpu --device cuda:0
      nas profile my-server --runtime onnxruntime --precision int8 --out my-server.json
      nas profile edge-box --export-kit kit.zip
      nas profile edge-box --import-kit result.json
    """
    if export_kit is not None and import_kit is not None:
        raise click.UsageError("--export-kit and --import-kit belong to different devices: give one of them")
    if export_kit is not None:
        refuse_others(context, "--export-kit", _TO_EXPORT, "`python measure.py --help` says what the device is told")
    if import_kit is not None:
        refuse_others(context, "--import-kit", _TO_IMPORT, "everything is measured already")
    from nas.progress import progress_for
    from nas.report.document import to_json
    from nas.targets.calling import PATTERNS_SHARE, with_patterns, with_pauses
    from nas.targets.profile import saved_profile, set_aside
    from nas.targets.profiling import profile_summary, profile_this_host, require_writable

    shell = context.ensure_object(Shell)
    shell.resume = shell.command
    progress = progress_for(quiet=quiet)
    if export_kit is not None:
        from nas.targets.kit import export_random_networks

        export_random_networks(export_kit, progress=progress, **options)
        click.echo(f"wrote {export_kit}: unpack it on the device and run `python measure.py` there")
        return
    if import_kit is not None:
        from nas.targets.kit import import_result

        path = out or saved_profile(name)
        require_writable(path)
        made = import_result(name, import_kit)
        if path.exists():
            progress.note(f"what was in {path} is kept as {set_aside(path).name}")
        made.save(path)
    else:
        began, budget_s = time.monotonic(), options.pop("budget_s")
        alone_s = budget_s * (1 - PATTERNS_SHARE * bool(with_pauses(calls)))
        made = profile_this_host(name, out, progress=progress, budget_s=alone_s, **options)
        left_s = max(0.0, budget_s - (time.monotonic() - began))
        made = with_patterns(made, calls, out or saved_profile(name), progress, left_s)
    if as_json:
        click.echo(to_json(profile_summary(made)))
    else:
        from nas.report.tables import print_profile

        print_profile(profile_summary(made))
