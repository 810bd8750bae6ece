"""Records real learning curves of random networks and judges their extrapolation.

`python -m experiments.learning_curves --data NAME --out CURVES.json` trains random networks of a space with one short
recipe, keeps the validation accuracy after every epoch in CURVES.json (networks that are in the file are not trained
again), and prints how well the ends of curves are predicted from their first epochs: each curve from all the others.
"""

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from experiments.curve_extrapolation import CurveExtrapolator, StopBadOnes
from nas.training.result import EpochRecord
from search_spaces import load_search_space

Floats = NDArray[np.float64]


@click.command()
@click.option("--data", required=True, help="A data set as `nas search --data` takes it.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--space", default="mobile", show_default=True)
@click.option("--resolution", default=32, show_default=True)
@click.option("--networks", default=30, show_default=True)
@click.option("--epochs", default=8, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--minutes", type=float, help="Stop training after so long; the same command goes on.")
def main(
    data: str, out: Path, space: str, resolution: int, networks: int, epochs: int, seed: int, minutes: float | None
) -> None:
    """Train what is missing and print the judgement."""
    recipe = {"data": Path(data).name, "space": space, "resolution": resolution, "epochs": epochs, "seed": seed}
    document: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {**recipe, "curves": {}}
    if {name: document[name] for name in recipe} != recipe:
        raise click.ClickException(f"{out} holds curves of another recipe: name another file")
    end = np.inf if minutes is None else time.monotonic() + 60 * minutes
    _record(document, data, networks, out, end)
    curves = np.array([c for c in document["curves"].values() if c is not None], dtype=np.float64)
    click.echo(f"{len(document['curves'])} of {networks} networks, {len(curves)} curves", err=True)
    if len(curves) >= 8:
        click.echo(judgement(curves))


def judgement(curves: Floats) -> str:
    """A table for people: from the first k epochs, each curve (n, epochs) from all the others."""
    from scipy.stats import kendalltau

    n, epochs = curves.shape
    others = [np.delete(curves, at, axis=0) for at in range(n)]
    learned = [CurveExtrapolator(epochs).fit(rest.tolist()) for rest in others]
    final = curves[:, -1]
    lines = ["epochs  error  error of last value  tau  tau of last value  90 % interval holds  its width"]
    for k in range(1, epochs):
        ends = [one.predict(curve[:k]) for one, curve in zip(learned, curves, strict=True)]
        median = np.array([e.median for e in ends])
        low, high = np.array([e.interval() for e in ends]).T
        lines.append(
            f"{k:6d}  {np.abs(median - final).mean():.3f}  {np.abs(curves[:, k - 1] - final).mean():19.3f}  "
            f"{kendalltau(median, final).statistic:.2f}  {kendalltau(curves[:, k - 1], final).statistic:17.2f}  "
            f"{((low <= final) & (final <= high)).mean():19.2f}  {(high - low).mean():9.3f}"
        )
    target = float(np.sort(final)[-max(1, n // 5)])
    spent = np.array([stopped_after(one, curve, target) for one, curve in zip(learned, curves, strict=True)])
    lost = int(((spent < epochs) & (final >= target)).sum())
    lines.append(
        f"stopping what is unlikely to be among the best fifth: {spent.mean():.1f} of {epochs} epochs on average, "
        f"{lost} of {int((final >= target).sum())} good ones lost"
    )
    return "\n".join(lines)


def stopped_after(extrapolator: CurveExtrapolator, curve: Floats, target: float) -> int:
    """After how many epochs a training with this curve ends."""
    callback = StopBadOnes(extrapolator, target)
    for epoch, accuracy in enumerate(curve.tolist(), start=1):
        if callback(
            EpochRecord(
                epoch=epoch, lr=0.0, train_loss=0.0, val_accuracy=accuracy, examples_per_s=0.0, data_wait_share=0.0,
                seconds=0.0,
            )
        ):  # fmt: skip
            return epoch
    return len(curve)


def _record(document: dict[str, Any], data: str, networks: int, out: Path, end: float) -> None:
    from nas.evaluation.short_training import ShortTraining, trained
    from nas.networks.description import NetworkDescription
    from nas.tasks import task_of
    from nas.tasks.classification.data.registry import load_dataset

    space = load_search_space(document["space"]).restrict("resolution", [document["resolution"]])
    images = load_dataset(data, seed=document["seed"]) if len(document["curves"]) < networks else None
    rng = np.random.default_rng(document["seed"])
    for row in space.sample(networks, rng):
        arch = space.architecture(row)
        if arch.key in document["curves"] or images is None or time.monotonic() >= end:
            continue
        description = NetworkDescription.of_architecture(space, arch, images.output_size)
        recipe = task_of(images).recipe(epochs=document["epochs"], precision="fp32", seed=document["seed"])
        _, result = trained(description, images, ShortTraining(recipe))
        # a diverged training is recorded as None: it has no curve to learn from
        document["curves"][arch.key] = None if result.stopped else [log.val_accuracy for log in result.curve]
        out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
