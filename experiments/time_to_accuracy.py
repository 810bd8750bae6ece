"""What a plain script reaches with a network, and when the recipe of searches reaches as much with the same network.

    python -m experiments.time_to_accuracy imagenette10_128.tar --network resnet10 --plain 12 --ours 6 --json out.json

The script is what a user would write in forty lines: one-cycle SGD with Nesterov's momentum, batches of 32, mirrored
images, one shift per batch of up to a tenth of the side, label smoothing of .1. Both compute in bf16, on the same
images, in the same process, with the same threads, one training after the other; accuracies are of the validation
images. A row that is in the file already is not made again.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import torch
from torch import nn
from torch.nn import functional

from nas.data import ImageData
from nas.data.images import image_input
from nas.evaluation.short_training import ShortTraining, trained
from nas.files.writing import write_json
from nas.measure.host import fingerprint
from nas.networks.description import NetworkDescription
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.evaluate import evaluate_accuracy
from nas.tasks.recipes import recipe_named
from nas.training.precision import autocast

BATCH = 32
PEAK_RATE, WARM_UP, DECAY, MOMENTUM, SMOOTHING = 0.1, 0.25, 5e-4, 0.9, 0.1
SHIFT_SHARE = 0.1
"""Of the side that a batch is shifted by, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training."""

    by: str
    """`plain script` or the name of a recipe."""
    epochs: int
    seed: int
    accuracy: float
    """Fraction of the validation images, at the end."""
    core_seconds: float
    """Processor time of all threads, without the validation of the plain script."""
    seconds: float


def compare(data: ImageData, network: str, plain: tuple[int, ...], ours: tuple[int, ...], seed: int, out: Path) -> None:
    """Make the rows that `out` lacks, and print all of them."""
    description = NetworkDescription.of_baseline(network, data.output_size, image_input(data.native_resolution))
    document = json.loads(out.read_text()) if out.exists() else {"rows": []}
    document |= {
        "cpu": fingerprint().cpu_model,
        "data": data.name,
        "network": network,
        "threads": torch.get_num_threads(),
    }
    known = {(row["by"], row["epochs"], row["seed"]) for row in document["rows"]}
    recipe = recipe_named("classification-search").changed(seed=seed, precision="bf16")
    for by, epochs in [("plain script", e) for e in plain] + [("classification-search", e) for e in ours]:
        if (by, epochs, seed) in known:
            continue
        wall, core = time.perf_counter(), time.process_time()
        if by == "plain script":
            trained_network = train_plainly(description, data, epochs, seed)
            seconds, core_s = time.perf_counter() - wall, time.process_time() - core
            accuracy = evaluate_accuracy(trained_network, data.val, data.preprocess)
        else:
            _, result = trained(description, data, ShortTraining(recipe.changed(epochs=epochs)), validates="last")
            seconds, core_s, accuracy = time.perf_counter() - wall, time.process_time() - core, result.accuracy
        row = Row(by=by, epochs=epochs, seed=seed, accuracy=accuracy, core_seconds=core_s, seconds=seconds)
        document["rows"].append(asdict(row))
        write_json(out, document)
    click.echo(f"{document['cpu']}, {document['threads']} threads; {data.name}, {len(data.train)} images; {network}\n")
    click.echo("| trained by | epochs | seed | validation % | core-seconds |\n|---|---|---|---|---|")
    for row in document["rows"]:
        accuracy, core_s = 100 * row["accuracy"], row["core_seconds"]
        click.echo(f"| {row['by']} | {row['epochs']} | {row['seed']} | {accuracy:.1f} | {core_s:.0f} |")


def train_plainly(description: NetworkDescription, data: ImageData, epochs: int, seed: int) -> nn.Module:
    """The network after so many epochs of the plain script."""
    torch.manual_seed(seed)
    network = description.build().to(memory_format=torch.channels_last).train()
    images, labels = torch.from_numpy(data.train.images[:]), torch.from_numpy(data.train.labels)
    steps, shift = epochs * (len(images) // BATCH), round(SHIFT_SHARE * data.native_resolution)
    optimiser = torch.optim.SGD(
        network.parameters(), PEAK_RATE, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, PEAK_RATE, total_steps=steps + 1, pct_start=WARM_UP
    )  # fmt: skip
    for _ in range(epochs):
        for batch in torch.randperm(len(images))[: len(images) // BATCH * BATCH].split(BATCH):  # type: ignore[no-untyped-call]
            inputs = shifted(data.preprocess.tensor(images[batch]), shift)
            with autocast(torch.device("cpu"), "bf16"):
                loss = functional.cross_entropy(network(inputs), labels[batch], label_smoothing=SMOOTHING)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return network.eval()


def shifted(inputs: torch.Tensor, most: int) -> torch.Tensor:
    """A batch (b, 3, h, w), mirrored or not, and shifted as a whole by up to `most` pixels each way."""
    if torch.rand(()) < 0.5:
        inputs = inputs.flip(3)
    height, width = inputs.shape[2:]
    top, left = (int(offset) for offset in torch.randint(0, 2 * most + 1, (2,)))
    wide = functional.pad(inputs, (most,) * 4, mode="reflect")
    return wide[:, :, top : top + height, left : left + width].contiguous(memory_format=torch.channels_last)


@click.command()
@click.argument("data")
@click.option("--network", default="resnet10", show_default=True, help="A well-known network of classification.")
@click.option("--plain", type=int, multiple=True, default=(12,), show_default=True, help="Epochs of the plain script.")
@click.option("--ours", type=int, multiple=True, default=(6, 12), show_default=True, help="Epochs of our recipe.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "out", type=click.Path(path_type=Path), required=True)
def main(data: str, network: str, plain: tuple[int, ...], ours: tuple[int, ...], seed: int, out: Path) -> None:
    """Compare them on DATA."""
    compare(load_dataset(data), network, plain, ours, seed, out)


if __name__ == "__main__":
    main()
