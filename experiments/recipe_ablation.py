"""What each ingredient of a recipe is worth: validation accuracy and processor time of one training per variant.

    python -m experiments.recipe_ablation --data cifar10.npz --network resnet10_w50 --epochs 4 --out ablation.json
    python -m experiments.recipe_ablation --data photos.tar --network mixed#4@128 --variant muon --out a.json

A network is one of the zoo, or `SPACE#k@SIDE`: the k-th anchor of a space (from 0) at a resolution. Every training is
the product's own, in this process with one thread; its price is the processor time of the process, so that other work
on the machine counts little. What is in the file of `--out` already is not trained again. Test images are never looked
at.

Beside the bundled variants, `--set "name: key=value key=value"` adds one of its own. Variants differ from `OUTSET` in
what they say and in nothing else.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import click
import yaml

from nas.data import ImageData
from nas.networks.description import NetworkDescription
from nas.tasks.recipes import recipe_named
from nas.training.recipe import merged
from search_spaces import TensorSpec, load_search_space

Settings = Mapping[str, Any]

OUTSET: Settings = {
    "start": "scratch",
    "batch_size": 32,
    "optimizer": {"name": "sgd", "lr": 0.05, "lr_batch_size": None, "fused": False},
    "schedule": {"warmup_epochs": 0, "warmup_fraction": 0.2},
    "ema_decay": None,
    "channels_last": True,
    "draws": "stream",
}
"""How searches trained until Muon: what the variants change, beside the recipe `base`."""
MUON: Settings = {
    "batch_size": 64,
    "optimizer": {"name": "muon", "lr": 0.05, "turn_lr": 0.06},
    "schedule": {"warmup_fraction": 0.1},
    "clip_norm": None,
}
MUON_256: Settings = {
    "batch_size": 256,
    "optimizer": {"name": "muon", "lr": 0.05, "turn_lr": 0.12, "norm_rate": 8.0},
    "augmentation": {"crop": "shift"},
    "norm_momentum": 0.3,
    "label_smoothing": 0.2,
    "clip_norm": None,
}
VARIANTS: Mapping[str, Settings] = {
    "sgd": {},
    "batch-128": {"batch_size": 128, "optimizer": {"lr": 0.2}},
    "linear-fall": {"schedule": {"name": "linear"}},
    "smoothing-.2": {"label_smoothing": 0.2},
    "shift": {"augmentation": {"crop": "shift"}},
    "norm-momentum-.6": {"norm_momentum": 0.6},
    "norm-rate-x8": {"optimizer": {"norm_rate": 8.0}},
    "growing-images": {"growing_size": [{"until": 0.5, "scale": 0.5}, {"until": 0.75, "scale": 0.75}]},
    "muon": MUON,
    "muon-shift": merged(MUON, {"augmentation": {"crop": "shift"}}),
    "muon-32": merged(MUON, {"batch_size": 32, "optimizer": {"lr": 0.025, "turn_lr": 0.042}}),
    "muon-16": merged(MUON, {"batch_size": 16, "optimizer": {"lr": 0.0125, "turn_lr": 0.03}}),
    "muon-256": MUON_256,
    "muon-linear": merged(MUON, {"schedule": {"name": "linear"}}),
}
"""Settings that differ from `OUTSET`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training."""

    data: str
    network: str
    variant: str
    epochs: int
    seed: int
    images: int | None
    """To train on; None: all."""

    @property
    def key(self) -> str:
        data = self.data if self.images is None else f"{self.data}, {self.images} images"
        return f"{data} | {self.network} | {self.variant} | {self.epochs} epochs | seed {self.seed}"


@click.command()
@click.option("--data", required=True, help="A data set as `nas search --data` takes it.")
@click.option("--network", "networks", required=True, multiple=True, help="Of the zoo, or SPACE#k@SIDE.")
@click.option("--variant", "variants", multiple=True, help="One of the bundled variants; all where none is named.")
@click.option("--set", "own", multiple=True, help='A variant of your own, "name: key=value key=value".')
@click.option("--epochs", default=4, show_default=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--images", type=int, help="Train on so many images, drawn at random; all where it is left out.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(
    data: str, networks: Sequence[str], variants: Sequence[str], own: Sequence[str], epochs: int,
    seeds: int, images: int | None, out: Path,
) -> None:  # fmt: skip
    """Train what is missing and print the table."""
    import torch

    from nas.tasks.classification.data.registry import load_dataset

    torch.set_num_threads(1)
    chosen = {name: VARIANTS[name] for name in variants} | dict(map(parsed, own))
    rows: dict[str, dict[str, float]] = json.loads(out.read_text()) if out.exists() else {}
    loaded: ImageData | None = None
    for seed in range(seeds):
        for network in networks:
            for name, settings in (chosen or VARIANTS).items():
                job = Job(data=Path(data).name, network=network, variant=name, epochs=epochs, seed=seed, images=images)
                if job.key in rows:
                    continue
                loaded = loaded or load_dataset(data, seed=0)
                rows[job.key] = outcome(loaded, job, settings)
                out.write_text(json.dumps(rows, indent=1) + "\n")
                click.echo(f"{job.key}: {rows[job.key]}", err=True)
    click.echo(table(rows))


def parsed(text: str) -> tuple[str, Settings]:
    """Name and settings of `name: key.sub=value key=value`; each value is read as YAML."""
    name, _, rest = text.partition(":")
    settings: dict[str, Any] = {}
    for part in rest.split():
        key, _, value = part.partition("=")
        nested: Any = yaml.safe_load(value)
        for step in reversed(key.split(".")):
            nested = {step: nested}
        settings = merged(settings, nested)
    return name.strip(), settings


def described(network: str, data: ImageData) -> NetworkDescription:
    """The network of a name as `--network` takes it; a well-known one takes images as they are stored."""
    if "#" not in network:
        side = data.native_resolution
        return NetworkDescription.of_baseline(network, data.output_size, TensorSpec((3, side, side)))
    name, _, rest = network.partition("#")
    number, _, side_text = rest.partition("@")
    space = load_search_space(name).restrict("resolution", (int(side_text),))
    return NetworkDescription.of_architecture(space, space.designs[int(number)][0], data.output_size)


def outcome(data: ImageData, job: Job, settings: Settings) -> dict[str, float]:
    """Train one network; its validation accuracy (%), and the processor time (s) of training and validating."""
    from nas.evaluation.short_training import ShortTraining, trained

    changed = merged(merged(OUTSET, settings), {"epochs": job.epochs, "seed": job.seed})
    recipe = recipe_named("base").changed(**changed)
    if recipe.precision == "auto":
        recipe = recipe.changed(precision="bf16")
    description = described(job.network, data)
    start = time.process_time()
    _, result = trained(description, data, ShortTraining(recipe, job.images))
    spent = time.process_time() - start
    return {"val": round(100 * result.accuracy, 2), "cpu_s": round(spent, 1)}


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Per data set, network, variant and number of epochs: means over the seeds, and the gain over the first row."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for key, row in rows.items():
        groups.setdefault(key.rpartition(" | ")[0], []).append(row)
    lines = [
        "| data | network | variant | epochs | seeds | val % | gain | CPU-s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    first: dict[tuple[str, str, str], float] = {}
    for key, found in groups.items():
        data, network, variant, epochs = key.split(" | ")
        val, spent = mean(row["val"] for row in found), mean(row["cpu_s"] for row in found)
        gain = val - first.setdefault((data, network, epochs), val)
        cells = [
            data,
            network,
            variant,
            epochs.split()[0],
            str(len(found)),
            f"{val:.1f}",
            f"{gain:+.1f}",
            f"{spent:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
