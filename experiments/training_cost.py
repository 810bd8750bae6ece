"""Training time of one image, by what a network computes: constants of `nas.controller.planning.plan.nominal_image_s`.

    python -m experiments.training_cost --networks 36 --out training-cost.json

Times steps of random networks of a space at several resolutions on one thread, alone on the machine, and fits seconds
per image as a non-negative sum of costs, by relative error. Prints the constants and how far single networks are from
them: a search measures the ratio of a network's time to its nominal one (`nas.controller.planning.throughput`).
"""

import json
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from nas.controller.planning.plan import nominal_image_s
from nas.training.precision import Precision
from nas.training.setup import Setup, step_seconds
from search_spaces import StagedSpace, load_search_space

CLASSES = 10
COLUMNS = ("macs", "activations", "depthwise_macs")


def measure(
    space: StagedSpace, resolutions: list[int], count: int, batch: int, precision: Precision, seed: int
) -> list[dict[str, float]]:
    """Costs and measured seconds per image of `count` random networks at each resolution."""
    rng = np.random.default_rng(seed)
    setup = Setup(precision=precision, channels_last=True, batch_size=batch)
    rows = []
    for resolution in resolutions:
        part = space.restrict("resolution", [resolution])
        for choices in part.sample(count, rng):
            arch = part.architecture(choices)
            costs = part.costs(choices[None], (CLASSES,))
            network = part.build(arch, (CLASSES,))
            seconds = step_seconds(network, part.input(arch), setup, torch.device("cpu"), steps=2) / batch
            rows.append(
                {name: float(costs[name][0]) for name in COLUMNS} | {"seconds": seconds, "resolution": resolution}
            )
            click.echo(f"{resolution:4d} px {1000 * seconds:8.2f} ms per image", err=True)
    return rows


def fit(rows: list[dict[str, float]]) -> tuple[NDArray[np.float64], float]:
    """Non-negative seconds per unit of each of `COLUMNS`, and the mean relative error."""
    costs = np.array([[row[name] for name in COLUMNS] for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    per_unit, _ = nnls(costs / seconds[:, None], np.ones(len(rows)))
    return per_unit, float(np.abs(costs @ per_unit / seconds - 1).mean())


@click.command()
@click.option("--space", "space_name", default="mixed", show_default=True)
@click.option("--networks", default=36, show_default=True, help="In all.")
@click.option("--resolutions", default="32,64,128", show_default=True)
@click.option("--batch", default=32, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path))
def main(space_name: str, networks: int, resolutions: str, batch: int, seed: int, out: Path | None) -> None:
    torch.set_num_threads(1)
    space, sizes = load_search_space(space_name), [int(r) for r in resolutions.split(",")]
    document = {}
    for precision in ("bf16", "fp32"):
        rows = measure(space, sizes, networks // len(sizes), batch, precision, seed)
        per_unit, error = fit(rows)
        costs = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
        ratios = np.array([row["seconds"] for row in rows]) / nominal_image_s(costs)
        constants = ", ".join(f"{name} {value:.2g}" for name, value in zip(COLUMNS, per_unit, strict=True))
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        click.echo(
            f"{precision}: seconds per {constants}; mean error {error:.0%}; ratio {middle:.2f} "
            f"({low:.2f} to {high:.2f})"
        )
        document[precision] = rows
    if out:
        out.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
