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
PLAIN, OURS = "plain script", "classification-search"
PEAK_RATE, WARM_UP, DECAY, SMOOTHING = 0.1, 0.25, 5e-4, 0.1
MOMENTUM = 0.9
"""At the beginning; one-cycle lets it fall to .85 where the rate is highest, and rise to .95."""
SHIFT_SHARE = 0.1
"""Of the side that a batch is shifted by, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training."""

    network: str
    data: str
    cpu: str
    threads: int
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
    about = {
        "network": network, "data": data.name, "cpu": fingerprint().cpu_model or "", "threads": torch.get_num_threads(),
    }  # fmt: skip
    rows = [Row(**row) for row in json.loads(out.read_text())] if out.exists() else []
    known = {(row.network, row.data, row.cpu, row.threads, row.by, row.epochs, row.seed) for row in rows}
    recipe = recipe_named(OURS).changed(seed=seed, precision="bf16")
    val = data.for_input("val", description.signature.input)  # made before any clock runs
    train_plainly(description, data.with_splits(train=data.train.some(2 * BATCH), val=data.val, test=data.test), 1, 0)
    for by, epochs in [(PLAIN, e) for e in plain] + [(OURS, e) for e in ours]:
        if (*about.values(), by, epochs, seed) in known:
            continue
        wall, core = time.perf_counter(), time.process_time()
        if by == PLAIN:
            finished = train_plainly(description, data, epochs, seed)
            seconds, core_s = time.perf_counter() - wall, time.process_time() - core
            accuracy = evaluate_accuracy(finished, val, data.preprocess)
        else:
            _, result = trained(description, data, ShortTraining(recipe.changed(epochs=epochs)), validates="last")
            seconds, core_s, accuracy = time.perf_counter() - wall, time.process_time() - core, result.accuracy
        rows.append(
            Row(**about, by=by, epochs=epochs, seed=seed, accuracy=accuracy, core_seconds=core_s, seconds=seconds)  # type: ignore[arg-type]
        )
        write_json(out, [asdict(row) for row in rows])
    click.echo("| network | data | processor, threads | trained by | epochs | seed | validation % | core-seconds |")
    click.echo(f"|{'---|' * 8}")
    for row in rows:
        cells = (row.network, row.data, f"{row.cpu}, {row.threads}", row.by, row.epochs, row.seed)
        click.echo(f"| {' | '.join(map(str, cells))} | {100 * row.accuracy:.1f} | {row.core_seconds:.0f} |")


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
