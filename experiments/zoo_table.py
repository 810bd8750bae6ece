"""Winners of searches beside well-known networks: same data, same recipe, several seeds, each in its best deployment.

Three commands on one folder; each may be killed and repeated:
`python -m experiments.zoo_table estimate --data D --epochs 100` tells what training would cost;
`python -m experiments.zoo_table train --data D --winner RUN#1 --epochs 100 --out DIR` trains what is missing, from the
last finished epoch on (several processes may share DIR, each with its own networks);
`python -m experiments.zoo_table table --data D --out DIR` exports and deploys everything that was trained, measures it
in one interleaved session, and writes `DIR/results.md` and `DIR/curves.svg`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from experiments.line_chart import Panel, chart
from experiments.zoo_deploy import best_deployments, measured_rows
from experiments.zoo_trainings import (
    BASELINES,
    Trainings,
    accuracies_of,
    contestants,
    epoch_core_seconds,
    shortened,
)
from experiments.zoo_verdicts import results_table, verdicts
from nas.errors import UserError
from nas.measure.host import fingerprint, usable_threads
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.recipes import recipe_named
from nas.training.recipe import Recipe
from nas.training.result import EpochRecord

PANELS_PER_ROW = 4


@click.group()
def main() -> None:
    """Winners of searches beside well-known networks."""


def _or_baselines(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return value or BASELINES


data_option = click.option("--data", required=True, help="As `nas search --data`.")
networks_option = click.option(
    "--network", "networks", multiple=True, callback=_or_baselines, help="Of the zoo (repeatable).  [default: all 8]"
)
winners_option = click.option("--winner", "winners", multiple=True, help="RUN#k (repeatable).")
recipe_option = click.option("--recipe", default="base", show_default=True, help="As `nas finetune`; from scratch.")
set_option = click.option("--set", "overrides", multiple=True, metavar="KEY.SUB=VALUE", help="Change one setting.")
epochs_option = click.option("--epochs", type=click.IntRange(min=1), required=True)
seeds_option = click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="0, 1, ...")
train_images_option = click.option("--train-images", type=click.IntRange(min=2), help="Random ones.  [default: all]")
val_images_option = click.option("--val-images", type=click.IntRange(min=1), help="Random ones.  [default: all]")
threads_option = click.option("--threads", type=click.IntRange(min=1), help="For training.  [default: all]")
resolution_option = click.option("--resolution", type=click.IntRange(min=1), help="Of the zoo.  [default: the data's]")
out_option = click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)


def training_options(command: Callable[..., None]) -> Callable[..., None]:
    """What `estimate` and `train` are both told."""
    options = (
        data_option, networks_option, winners_option, recipe_option, set_option, epochs_option, seeds_option,
        train_images_option, val_images_option, threads_option, resolution_option,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@training_options
@click.option("--images", type=click.IntRange(min=32), default=320, show_default=True, help="In the timed epoch.")
def estimate(
    data: str, networks: Sequence[str], winners: Sequence[str], recipe: str, overrides: Sequence[str], epochs: int,
    seeds: int, train_images: int | None, val_images: int | None, threads: int | None, resolution: int | None,
    images: int,
) -> None:  # fmt: skip
    """Core-hours of training all of it, from one epoch of each network on a few images."""
    _use_threads(threads)
    settings = _recipe(recipe, overrides, epochs)
    loaded = shortened(load_dataset(data), train_images, val_images)
    share = min(1.0, images / len(loaded.train))
    few = shortened(loaded, round(share * len(loaded.train)), max(1, round(share * len(loaded.val))))
    total = 0.0
    click.echo("| network | ms per training image | core-hours |\n|---|---|---|")
    for contestant in contestants(networks, winners, loaded, resolution):
        seconds = epoch_core_seconds(contestant, few, settings)
        hours = seconds / share * epochs * seeds / 3600
        total += hours
        click.echo(f"| {contestant.name} | {1e3 * seconds / len(few.train):.1f} | {hours:.2f} |")
    click.echo(f"\n{total:.1f} core-hours for {epochs} epochs of {len(loaded.train)} images, {seeds} seeds")


@main.command()
@training_options
@out_option
def train(
    data: str, networks: Sequence[str], winners: Sequence[str], recipe: str, overrides: Sequence[str], epochs: int,
    seeds: int, train_images: int | None, val_images: int | None, threads: int | None, resolution: int | None,
    out: Path,
) -> None:  # fmt: skip
    """Train every network from scratch with every seed, on a GPU where there is one; skips what is finished."""
    _use_threads(threads)
    settings = _recipe(recipe, overrides, epochs)
    loaded = shortened(load_dataset(data), train_images, val_images)
    trainings = Trainings(out)
    sizes = {"train_images": len(loaded.train), "val_images": len(loaded.val)}
    trainings.settle({"data": loaded.name, **sizes, "recipe": settings.model_dump(mode="json")})
    for seed in range(seeds):
        for contestant in contestants(networks, winners, loaded, resolution):

            def tell(record: EpochRecord, what: str = f"{contestant.name}, seed {seed}") -> None:
                accuracy = f"validation {record.val_accuracy:.1%}"
                click.echo(f"{what}: epoch {record.epoch} of {epochs}, {accuracy}, {record.seconds:.0f} s", err=True)

            trainings.train(contestant, seed, loaded, settings, tell)


@main.command()
@data_option
@out_option
@click.option("--threads", type=click.IntRange(min=1), help="Of the deployed networks.  [default: all]")
@click.option("--sessions", type=click.IntRange(min=1), default=5, show_default=True, help="Fresh sessions.")
def table(data: str, out: Path, threads: int | None, sessions: int) -> None:
    """Deploy and measure what was trained; write results.md and curves.svg."""
    trainings = Trainings(out)
    all_trained = trainings.finished()
    finished = [t for t in all_trained if t["stopped"] is None]
    if not finished:
        raise UserError(f"'{out}' holds no finished training", "run the command `train` first")
    settings = json.loads((out / "settings.json").read_text(encoding="utf-8"))
    whole = load_dataset(data)
    if settings["data"] != whole.name:
        raise UserError(f"'{out}' holds trainings on {settings['data']}, not on {whole.name}", "give their --data")
    loaded = shortened(whole, settings["train_images"], settings["val_images"])
    lost = [f"{t['network']} seed {t['seed']}: {t['stopped']}" for t in all_trained if t["stopped"] is not None]
    count = threads or usable_threads()
    deployed = best_deployments(trainings, finished, loaded, count)
    rows = measured_rows(deployed, count, sessions)
    text = "\n".join(
        [
            f"{loaded.name}, {settings['train_images']} training and {len(loaded.test)} test images, "
            f"{settings['recipe']['epochs']} epochs from scratch; {fingerprint().cpu_model}, {count} threads. "
            "Accuracy of the deployed file on the test images, in its runtime: mean and standard deviation over the "
            "seeds. Latency: median call at batch 1. Throughput: the best of one call at a time and of several "
            "streams, at batch 1. Last gain: validation accuracy of the last tenth of the epochs less the tenth "
            "before, in points.",
            "",
            results_table(rows),
            "",
            *([f"Without a result: {'; '.join(lost)}.", ""] if lost else []),
            verdicts(rows),
        ]
    )
    (out / "results.md").write_text(text, encoding="utf-8")
    (out / "curves.svg").write_text(curves_chart(finished), encoding="utf-8")
    click.echo(text)


def curves_chart(finished: Sequence[Mapping[str, Any]]) -> str:
    """SVG: validation accuracy by epoch, a panel per network and a line per seed."""
    networks = list(dict.fromkeys(str(t["network"]) for t in finished))
    best = max(max(accuracies_of(t)) for t in finished)
    panels = []
    for name in networks:
        lines = {}
        for training in (t for t in finished if t["network"] == name):
            accuracies = 100 * np.array(accuracies_of(training))
            lines[f"seed {training['seed']}"] = (np.arange(1.0, len(accuracies) + 1), accuracies)
        epochs = max(len(x) for x, _ in lines.values())
        marks = {f"{mark} %": float(mark) for mark in range(0, 101, 20)}
        top = 20.0 * math.ceil(max(0.1, best) * 5)
        panels.append(Panel(name, lines, (0.0, float(max(2, epochs))), (0.0, top), marks))
    rows = [panels[i : i + PANELS_PER_ROW] for i in range(0, len(panels), PANELS_PER_ROW)]
    return chart(rows, "epoch; validation accuracy")


def _recipe(name: str, overrides: Sequence[str], epochs: int) -> Recipe:
    return recipe_named(name, [*overrides, "start=scratch", f"epochs={epochs}"])


def _use_threads(threads: int | None) -> None:
    import torch

    torch.set_num_threads(threads or usable_threads())


def run() -> None:
    """`main`, with a user's errors as one sentence."""
    try:
        main(standalone_mode=True)
    except UserError as error:
        raise SystemExit(f"Error: {error}" + (f"\nhint: {error.hint}" if error.hint else "")) from error


if __name__ == "__main__":
    run()
