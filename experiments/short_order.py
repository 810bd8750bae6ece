"""How well the short trainings of a search order networks of its space: against full trainings of the same networks.

    python -m experiments.short_order train --data imagenette10_128.tar --budget 25m --epochs 30 --out order.json
    python -m experiments.short_order page order.json

`train` draws random networks that a search of the budget may propose, gives each the short training that such a search
gives its candidates (validation images), then a full one of the same recipe, judged on the test images. What is in the
file is not trained again; `--part 0/2` and `--part 1/2` divide the networks between two processes, whose files `page`
reads together.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from experiments.supernet_page import tau_interval
from nas.cli.types import Seconds
from nas.controller.config import SearchConfig
from nas.controller.planning.recipes import Recipes, make_recipes
from nas.controller.planning.throughput import TrainingThroughput
from nas.controller.promise import promise
from nas.evaluation.short_training import ShortTraining, trained
from nas.files.writing import write_json
from nas.limits import Limits
from nas.measure.host import fingerprint
from nas.networks.description import NetworkDescription
from nas.tasks import task_named, task_of
from search_spaces import Architecture

Floats = NDArray[np.float64]
DEPLOYMENTS = 5
"""As many as a host with both runtimes has: a search leaves time for them."""
DRAWN = 512
"""Random networks, of which the first ones that are affordable are trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One network, trained briefly and fully."""

    key: str
    macs: float
    params: float
    short: float
    """Accuracy on the validation images after the short training, a fraction."""
    short_s: float
    """Processor time of the short training, all threads."""
    full: float
    """Accuracy on the test images after the full one."""
    full_s: float


@click.group()
def cli() -> None:
    """See the module's docstring."""


@cli.command("train")
@click.option("--data", required=True, help="As `nas search --data`, of images.")
@click.option("--space", default="compact", show_default=True)
@click.option("--budget", "budget_s", type=Seconds(), default="25m", show_default=True, help="Of the search.")
@click.option("--networks", default=24, show_default=True)
@click.option("--epochs", default=30, show_default=True, help="Of the full trainings.")
@click.option("--seed", default=0, show_default=True)
@click.option("--part", default="0/1", show_default=True, help="Which of the networks: K/N.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def train_command(
    data: str, space: str, budget_s: float, networks: int, epochs: int, seed: int, part: str, out: Path
) -> None:
    """Train what is missing."""
    # Trainings depend on no limit, but a search has to have one.
    config = SearchConfig(data=data, space=space, budget_s=budget_s, seed=seed, limits=Limits.of(latency_ms=1.0))
    about = {"data": Path(data).name, "space": space, "budget_s": budget_s, "epochs": epochs, "seed": seed}
    document: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {**about, "records": []}
    if {name: document[name] for name in about} != about:
        raise click.ClickException(f"{out} holds other trainings: name another file")
    recipes = recipes_of(config, document.get("throughput"))
    document |= {"cpu": fingerprint().cpu_model, "throughput": recipes.throughput.to_json()}
    known = {record["key"] for record in document["records"]}
    number, parts = (int(figure) for figure in part.split("/"))
    for arch in drawn(recipes, networks, seed, number, parts):
        if arch.key not in known:
            record = both_trainings(arch, recipes, epochs)
            document["records"].append(asdict(record))
            write_json(out, document)
            click.echo(f"{record.key}: {record.short:.1%} in {record.short_s:.0f} s, {record.full:.1%}", err=True)


def recipes_of(config: SearchConfig, throughput: dict[str, Any] | None) -> Recipes:
    """The trainings that a search of `config` would plan here, at the recorded throughput where there is one."""
    task = task_named(config.task)
    data = task.load(config.data, seed=config.seed, options=config.data_options)
    known = None if throughput is None else TrainingThroughput.from_json(throughput)
    return make_recipes(config, task.searchable(config.search_space, data, {}), data, known)


def drawn(recipes: Recipes, count: int, seed: int, number: int, parts: int) -> list[Architecture]:
    """A part of `count` random networks whose full training a search could afford: of every `parts` that are drawn the
    one of this `number`, whatever others call affordable."""
    affordable, _ = recipes.affordable(DEPLOYMENTS)
    archs = {
        a.key: a for a in map(recipes.space.architecture, recipes.space.sample(DRAWN, np.random.default_rng(seed)))
    }
    own = list(archs.values())[number::parts]
    able = affordable(recipes.space.choices(own))
    return [arch for arch, good in zip(own, able, strict=True) if good][: -(-(count - number) // parts)]


def both_trainings(arch: Architecture, recipes: Recipes, epochs: int) -> Record:
    """Train one network twice, from the same random weights."""
    data, space = recipes.data, recipes.space
    description = NetworkDescription.of_architecture(space, arch, data.output_size)
    costs = space.costs(space.choices([arch]), data.output_size)
    began = time.process_time()
    _, short = trained(description, data, recipes.short(arch), validates="last")
    between = time.process_time()
    long = ShortTraining(recipes.base.changed(epochs=epochs))
    network, _ = trained(description, data, long, validates="last")
    ended = time.process_time()
    test = data.for_input("test", description.signature.input)
    return Record(
        key=arch.key,
        macs=float(costs["macs"][0]),
        params=float(costs["params"][0]),
        short=short.accuracy,
        short_s=between - began,
        full=task_of(data).accuracy(network, test, data.preprocess),
        full_s=ended - between,
    )


@cli.command("page")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def page_command(files: tuple[Path, ...]) -> None:
    """Print how well each estimate orders the networks of the files."""
    documents = [json.loads(file.read_text()) for file in files]
    click.echo(page([Record(**record) for document in documents for record in document["records"]]))


def page(records: Sequence[Record]) -> str:
    """A table in Markdown: Kendall's tau of each estimate with the accuracies after full trainings."""
    full, short, macs, params = (column(records, name) for name in ("full", "short", "macs", "params"))
    estimates = {
        "parameters": params,
        "MACs": macs,
        "short training": short,
        "short training and MACs, as finalists are chosen": promise(short.tolist(), macs.tolist()),
    }
    price_s, full_s = float(np.mean(column(records, "short_s"))), float(np.mean(column(records, "full_s")))
    lines = [
        f"{len(records)} networks of {macs.min() / 1e6:.0f} to {macs.max() / 1e6:.0f} MMAC; full trainings reach "
        f"{100 * full.min():.1f} to {100 * full.max():.1f} % of the test images (standard deviation "
        f"{100 * full.std():.1f}) in {full_s:.0f} core-seconds each, short ones {100 * short.min():.1f} to "
        f"{100 * short.max():.1f} % of the validation images in {price_s:.0f}.",
        "",
        "| estimate | tau (90 % bootstrap interval) |",
        "|---|---|",
    ]
    for name, values in estimates.items():
        tau, low, high = tau_interval(values, full)
        lines.append(f"| {name} | {tau:.2f} ({low:.2f} to {high:.2f}) |")
    return "\n".join(lines)


def column(records: Sequence[Record], name: str) -> Floats:
    """(n,) of one figure."""
    return np.array([getattr(record, name) for record in records], dtype=np.float64)


if __name__ == "__main__":
    cli()
