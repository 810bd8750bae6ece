"""What `--estimator auto` picks, by the number of images and the budget: the table in docs/accuracy.md.

`python -m experiments.estimator_choice` counts, it measures nothing: nominal training times on this machine's threads
times `--slowness` (measured on a host by `nas.controller.planning.throughput`; 1 is the EPYC that they are fitted to).
"""

from collections.abc import Callable, Sequence

import click
import numpy as np
from numpy.typing import NDArray

from nas.cli.types import Seconds
from nas.controller.config import SearchConfig
from nas.controller.planning.estimator_choice import planned_phase_s, typical_short_s
from nas.controller.planning.recipes import Recipes
from nas.controller.planning.throughput import TrainingThroughput
from nas.data.images import ImageData, ImageSplit, Preprocess
from nas.evaluation.estimators import choose_estimator
from nas.limits import Limits
from nas.tasks import task_of
from nas.text import duration
from search_spaces import Choices, load_search_space

DEPLOYMENTS = 5
"""That each finalist is tried in: what ONNX Runtime and OpenVINO offer on a processor with bf16."""


def recipes(images: int, pixels: int, budget_s: float, slowness: float, threads: int, space: str = "mixed") -> Recipes:
    """The trainings of a search with so many training images of so many pixels a side, which are never looked at."""
    data = _stand_in(images, pixels)
    whole = load_search_space(space)
    return Recipes(
        config=SearchConfig(limits=Limits.of(latency_ms=1.0), budget_s=budget_s, space=space),
        space=task_of(data).searchable(whole, data, {}),
        data=data,
        base=task_of(data).recipe(),
        throughput=TrainingThroughput("cpu", "bf16", slowness / threads),
    )


def row(found: Recipes) -> str:
    """A line of the table: what the rule counts for these trainings where no limit on latency is in the way."""
    admissible: Callable[[Choices], NDArray[np.bool_]] = found.affordable(DEPLOYMENTS)[0]
    phase_s, short_s = planned_phase_s(found), typical_short_s(found, admissible)
    images, pixels = len(found.data.train), task_of(found.data).input_label(found.data.train.input)
    chosen, _ = choose_estimator(phase_s, "", short_s=short_s)
    return (
        f"| {images:,} of {pixels} | {duration(found.planned_s)} | {phase_s:,.0f} s "
        f"| {int(phase_s / short_s)}, {short_s:.3g} s | `{chosen}` |"
    )


def _stand_in(images: int, pixels: int) -> ImageData:
    def split(count: int) -> ImageSplit:
        pictures = np.broadcast_to(np.zeros((1, 1, 1, 1), np.uint8), (count, pixels, pixels, 3))  # takes no memory
        return ImageSplit(pictures, np.arange(count) % 10)

    return ImageData(
        name="stand-in",
        classes=tuple(map(str, range(10))),
        train=split(images),
        val=split(images // 6),
        test=split(images // 6),
        native_resolution=pixels,
        preprocess=Preprocess((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        flip_ok=True,
    )


@click.command()
@click.option("--images", default=1300, show_default=True, help="For training.")
@click.option("--pixels", default=32, show_default=True, help="Their height and width.")
@click.option("--budget", "budgets_s", type=Seconds(), multiple=True, default=("20m", "4h"), help="Repeatable.")
@click.option("--slowness", default=1.0, show_default=True, help="Measured by nominal training times.")
@click.option("--threads", default=2, show_default=True)
def main(images: int, pixels: int, budgets_s: Sequence[float], slowness: float, threads: int) -> None:
    """Print the table of what `auto` counts and picks."""
    click.echo(f"Nominal times on {threads} threads, times {slowness:g}.\n")
    click.echo("| training images | budget | time for estimates | short trainings, each about | `auto` |")
    click.echo("|---|---|---|---|---|")
    for budget_s in budgets_s:
        click.echo(row(recipes(images, pixels, budget_s, slowness, threads)))


if __name__ == "__main__":
    main()
