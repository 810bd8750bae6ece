"""A winner and well-known networks behind HTTP: images per second of 20 to 50 clients, and at a limit on latency.

`python -m experiments.serving_table --winner RUN#1 --data imagenette --images PHOTOS --out bundles` prepares each
network once in its fastest deployment (the well-known ones with random weights: good for rates, their answers are
worth nothing), serves one after the other with one replica per core, and prints a Markdown table. About 15 minutes on
a quiet machine.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from experiments.serving_zoo import NETWORKS, untrained_bundle
from nas.bundles.receipt import read_receipt
from nas.files.writing import write_whole
from nas.loadtest.config import CLIENTS, LoadConfig
from nas.loadtest.run import run_load_test
from nas.loadtest.tables import remarks
from nas.networks.find import find_bundle
from nas.progress import progress_for
from nas.report.document import Document, to_json
from nas.tasks.classification.data.registry import load_dataset
from nas.text import count, milliseconds, percent


@click.command()
@click.option("--winner", "winners", multiple=True, help="RUN#k or a bundle (repeatable).")
@click.option("--network", "networks", multiple=True, default=NETWORKS, help="Of the zoo (repeatable).")
@click.option("--data", default="imagenette", show_default=True, help="For calibration, as `nas search --data`.")
@click.option("--resolution", type=click.IntRange(min=32), default=128, show_default=True, help="Of the zoo.")
@click.option("--images", type=click.Path(path_type=Path), help="Photos to send.  [default: each bundle's sample]")
@click.option("--slo-ms", type=click.FloatRange(min=0.1), default=20.0, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Of each trial.")
@click.option("--sessions", type=click.IntRange(min=1), default=2, show_default=True, help="Fresh servers.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Bundles and results.")
def main(
    winners: tuple[str, ...], networks: tuple[str, ...], data: str, resolution: int, images: Path | None,
    slo_ms: float, seconds: float, sessions: int, out: Path,
) -> None:  # fmt: skip
    """Serve networks, put load on them, and print a table."""
    out.mkdir(parents=True, exist_ok=True)
    loaded = load_dataset(data)
    bundles = [str(find_bundle(winner)) for winner in winners]
    bundles += [str(untrained_bundle(name, loaded, data, resolution, 1, out)) for name in networks]
    config = LoadConfig(
        bundles=tuple(bundles), clients=CLIENTS, slo_ms=slo_ms, images=images, seconds=seconds, runs=sessions,
        command="experiments.serving_table",
    )  # fmt: skip
    document = run_load_test(config, progress_for())
    write_whole(out / "serving.json", to_json(document).encode())
    plain = json.loads(to_json(document))
    text = table([*winners, *networks], [deployment_of(bundle) for bundle in bundles], plain)
    write_whole(out / "serving.md", text.encode())
    click.echo(text)
    for line in remarks(plain):
        click.echo(line)


def deployment_of(bundle: str) -> str:
    return read_receipt(Path(bundle)).deployment.name


def table(names: Sequence[str], deployments: Sequence[str], document: Document) -> str:
    """Markdown: images per second for each number of clients, latencies at the most of them, and at the limit."""
    clients = sorted({row["clients"] for server in document["servers"] for row in server["closed"]})
    heading = [
        "network", "deployment", "replicas x threads", *(f"{n} clients" for n in clients), "p50 ms", "p99 ms",
        "failed", "cv 1 s", "cv runs", f"images/s at {document['slo_ms']:g} ms",
    ]  # fmt: skip
    rows = [heading, ["---"] * len(heading)]
    for name, deployment, server in zip(names, deployments, document["servers"], strict=True):
        rows.append([name, deployment, *_cells(server, clients)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _cells(server: Document, clients: Sequence[int]) -> list[str]:
    by_clients: dict[int, Any] = {row["clients"]: row for row in server["closed"]}
    last = by_clients.get(clients[-1]) if clients else None
    at_slo = server["at_slo"]["images_per_s"]
    if last is None:
        return ["-"] * (len(clients) + 6) + [server["not_measured"] or "-"]
    settings = server["settings"]
    valid = all(row["valid"] for row in by_clients.values())
    return [
        f"{settings['replicas']} x {settings['threads']}",
        *(count(by_clients[n]["images_per_s"]) + ("" if valid else " !") for n in clients),
        milliseconds(last["latency_ms"]["p50"]),
        milliseconds(last["latency_ms"]["p99"]),
        str(sum(sum(row["failures"].values()) for row in by_clients.values())),
        percent(last["cv_1s"]),
        percent(last["cv_runs"]),
        "none" if at_slo is None else count(at_slo),
    ]


if __name__ == "__main__":
    main()
