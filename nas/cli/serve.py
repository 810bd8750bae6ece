"""`nas serve`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nas.cli.types import LatencyMs

if TYPE_CHECKING:
    from nas.progress import Progress
    from nas.serving.settings import ServingSettings

DEFAULT_PORT = 8000
CHOSEN = ("replicas", "threads", "batch", "wait_ms", "deadline_ms", "drain_s")
"""Options that are settings of the server; what is not given is chosen."""


@click.command(short_help="Serve a bundle over HTTP.")
@click.argument("bundle")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0: any free one."
)
@click.option("--name", help="What clients call the model.  [default: the bundle's folder]")
@click.option(
    "--slo-ms",
    type=LatencyMs(),
    help="Measure which replicas, threads and batch answer most images within that time, and keep them for this host.",
)
@click.option("--again", is_flag=True, help="With --slo-ms: measure even where it is known.")
@click.option("--replicas", type=click.IntRange(min=1), help="Processes with the network.  [default: cores / threads]")
@click.option("--threads", type=click.IntRange(min=1), help="Cores of a replica.  [default: the receipt's threads]")
@click.option("--batch", type=click.IntRange(min=1), help="Most images of one call.  [default: the receipt's]")
@click.option("--wait-ms", type=click.FloatRange(min=0), help="How long a call waits for more images.  [default: 0]")
@click.option(
    "--deadline-ms",
    type=click.FloatRange(min=0, min_open=True),
    help="Refuse at once what could not be answered in that time.  [default: --slo-ms, or 1000]",
)
@click.option(
    "--drain-s",
    type=click.FloatRange(min=0),
    help="Seconds of still accepting requests after SIGTERM, not ready any more.  [default: 2]",
)
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Serve on a Ray cluster: HOST:PORT, or auto.")
@click.option("--json", "as_json", is_flag=True, help="Say where it is as one JSON document.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def serve(
    bundle: str,
    *,
    host: str,
    port: int,
    name: str | None,
    slo_ms: float | None,
    again: bool,
    ray_address: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Serve BUNDLE (a bundle's folder, or RUN#k) over HTTP until SIGTERM or Ctrl-C, which lose no request.

    POST /predict takes an image file and answers with its label, as JSON. Clients of other servers find the Open
    Inference Protocol (version 2) under /v2, Prometheus its numbers under /metrics. The server is there once the
    bundle's checksums fit and every replica has answered the stored sample as it did when it was exported.

    \b
    Example:
      nas serve runs/photos#1 --port 8000
      curl --data-binary @photo.jpg http://127.0.0.1:8000/predict
      nas serve runs/photos#1 --slo-ms 20
    """
    import asyncio
    import logging

    from nas.progress import progress_for
    from nas.serving.checks import checked_bundle, served_name
    from nas.serving.choosing import chosen_settings
    from nas.serving.spec import ServerSpec

    if again and slo_ms is None:
        raise click.UsageError("--again takes --slo-ms: there is nothing to measure")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    progress = progress_for(quiet=quiet)
    folder, receipt = checked_bundle(bundle)
    progress.note(f"{folder}: {len(receipt.sha256)} files are as delivered")
    given = {key: options[key] for key in CHOSEN if options[key] is not None}
    settings = chosen_settings(folder, receipt, given, slo_ms=slo_ms, again=again, tune=_tune, progress=progress)
    spec = ServerSpec(folder=folder, name=name or served_name(folder), host=host, port=port, settings=settings)

    def say(url: str, hop_ms: float | None = None) -> None:
        if as_json:
            from nas.report.document import to_json

            hop = {} if hop_ms is None else {"ray_ms": hop_ms}
            click.echo(to_json({"url": url, "name": spec.name, "settings": settings.to_json(), **hop}))
        else:
            size = f"{settings.replicas} x {settings.threads} cores, batch {settings.batch}"
            hop_text = "" if hop_ms is None else f"; of each request HTTP and Ray's proxy take {hop_ms:.2g} ms"
            click.echo(f"serving {spec.name} at {url} ({size}){hop_text}")
        sys.stdout.flush()

    if ray_address is not None:
        from nas.serving.on_ray import serve_on_ray

        serve_on_ray(spec, ray_address, say)
    else:
        from nas.serving.supervisor import serve as serve_here

        asyncio.run(serve_here(spec, receipt, lambda running, _: say(running.url)))


def _tune(bundle: Path, slo_ms: float, progress: "Progress") -> "ServingSettings":
    """Imported when something is to be measured."""
    from nas.loadtest.tuning import tune

    return tune(bundle, slo_ms, progress)
