"""`nas export`."""

from pathlib import Path
from typing import Any

import click

from nas.cli.shell import Shell, refuse_others
from nas.cli.types import Calls, Device, LatencyMs, PercentagePoints
from nas.deployment import DYNAMIC_INT8, EXTENTS

_WITH_VERIFY = ("model", "--data", "--json", "--quiet")


@click.command(short_help="Make a network ready to deploy, with a receipt, or verify one.")
@click.argument("model")
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), help="Weights (safetensors).  [default: beside the network]"
)
@click.option(
    "--runtime", "runtimes", multiple=True, help="Try only this runtime (repeatable).  [default: all installed]"
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "bf16", "fp16", "int8", DYNAMIC_INT8]),
    default="auto",
    show_default=True,
    help="Try only this precision; auto: the fastest that is accurate enough.",
)
@click.option(
    "--max-drop",
    type=PercentagePoints(),
    help="Accuracy that a faster precision may cost, in percentage points.  [default: the run's, or 1.0]",
)
@click.option("--latency-ms", type=LatencyMs(), help="Limit: milliseconds for one call.  [default: the run's]")
@click.option(
    "--calls", type=Calls(), help="How it will be called: continuous, 20/s, idle.  [default: as the run, or continuous]"
)
@click.option(
    "--limit-on",
    type=click.Choice(EXTENTS),
    help="What latencies are of: the network, or the pipeline around it.  [default: as the run, or network]",
)
@click.option("--target", help="The device; `nas targets` lists them.  [default: the run's, or local]")
@click.option("--device", type=Device(), help="Of the target: cpu or cuda:N.  [default: cpu]")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the deployed network.  [default: all]")
@click.option("--data", help="What the network was trained on: a name or a path.  [default: the run's]")
@click.option("--seed", type=click.IntRange(min=0), help="Of splits that the data lacks.  [default: the run's, or 0]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The bundle's folder.  [default: RUN/exports/K, or NAME.bundle]"
)
@click.option(
    "--docker", type=click.Path(path_type=Path), help="MODEL is a bundle: write a folder to build a container of."
)
@click.option(
    "--repository",
    type=click.Choice(["triton", "ovms"]),
    help="MODEL is a bundle: write it into a model repository of that server, in --out.",
)
@click.option("--verify", is_flag=True, help="MODEL is a bundle, or RUN#k: repeat its receipt's checks.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def export(
    context: click.Context,
    /,
    *,
    model: str,
    docker: Path | None,
    repository: str | None,
    verify: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Export MODEL to ONNX, try every runtime and precision on this machine, and write the best as a bundle.

    MODEL is RUN#k (the k-th network of a run: its winners, then its other finalists by accuracy; RUN alone is RUN#1),
    NAME.network.json with NAME.safetensors beside it, a folder with model.network.json, or an architecture's JSON with
    --checkpoint. ONNX is compared with torch; accuracy is measured in each runtime on all validation images, int8 is
    calibrated on training images, and latency is measured in freshly loaded sessions. The bundle holds the model,
    labels, pre-processing, a sample, run.py and the receipt.
    A limit that is missed is exit code 3.

    --verify repeats the checks: checksums, ONNX against torch, the sample's output, accuracy and limits. One that fails
    is exit code 3. --docker and --repository hand a bundle on to a container, or to another server.

    \b
    Example:
      nas export runs/classification-local-10ms#1
      nas export runs/classification-local-10ms#1 --runtime openvino --precision int8 --max-drop 2 --out photos.bundle
      nas export model.network.json --data ./photos --latency-ms 5 --json
      nas export --verify photos.bundle
      nas export photos.bundle --docker photos-container
      nas export photos.bundle --repository triton --out models
    """
    if docker is not None:
        refuse_others(context, "--docker", ("model", "--quiet"), "it takes a bundle as it is")
        from nas.serving.container import write_container

        click.echo(f"written: {write_container(model, docker)}")
        return
    if repository is not None:
        refuse_others(context, "--repository", ("model", "--out", "--quiet"), "it takes a bundle as it is")
        if options["out"] is None:
            raise click.UsageError("--repository takes --out: the folder of the repository")
        from nas.serving.repository import write_repository

        click.echo(f"written: {write_repository(model, repository, options['out'])}")
        return
    from nas.progress import progress_for
    from nas.report.document import to_json

    progress = progress_for(quiet=quiet)
    if verify:
        refuse_others(context, "--verify", _WITH_VERIFY, "it repeats what the receipt says")
        from nas.bundles.verify import verify_bundle
        from nas.report.tables import print_checks

        checks = verify_bundle(model, data=options["data"], progress=progress)
        failed = [check for check in checks if check.status == "failed"]
        if as_json:
            document = {"bundle": model, "passed": not failed, "checks": [c.to_json() for c in checks]}
            click.echo(to_json(document))
        else:
            print_checks(model, [c.to_json() for c in checks])
        for check in failed:
            click.echo(f"Error: {model} fails the check of its {check.name}: {check.detail}", err=True)
        context.exit(3 if failed else 0)

    from nas.bundles.exporting import ExportRequest, export_bundle
    from nas.report.tables import print_receipt

    shell = context.ensure_object(Shell)
    options["runtimes"] = options["runtimes"] or None
    exported = export_bundle(ExportRequest(model=model, command=shell.command, **options), progress)
    if as_json:
        click.echo(to_json({"bundle": str(exported.folder), **exported.receipt}))
    else:
        print_receipt(str(exported.folder), exported.receipt)
    if exported.missed:
        click.echo(f"Error: the limit was missed: {exported.missed}", err=True)
        click.echo("hint: export a smaller network, or search again with this limit", err=True)
        context.exit(3)
