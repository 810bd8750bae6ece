"""What a teacher of texts is worth where few texts have labels.

A network of ours is trained on all labelled texts. Then only some of them keep their labels: a student is trained on
these alone, and another one on these and on the others, as the teacher answers them. Numbers of epochs are chosen on
the validation texts; the test texts are looked at once, for the table.

    python -m experiments.text_teacher --data sst2.csv.gz --labelled 1000 --seeds 3
"""

import argparse
import csv
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from experiments.text_gate import architecture
from nas.evaluation.short_training import ShortTraining, trained
from nas.files.tensors import checksum
from nas.measure.host import fingerprint
from nas.networks.description import NetworkDescription
from nas.progress import SilentProgress
from nas.tasks import task_named
from nas.tasks.teaching import OwnTeacher
from nas.tasks.text.data import TextData
from nas.tasks.text.data.tables import Row, read_table
from nas.tasks.text.evaluate import logits_of, merit_of
from nas.tasks.text.teaching import TextTeaching
from search_spaces import TextSpace, resolve_space

TOKENS, VOCABULARY, EPOCHS = 48, 4000, (8, 24)


def network_for(data: TextData, kind: str) -> NetworkDescription:
    """A network of a kind with a wide path of pairs; its vocabulary is no larger than the data's."""
    space = resolve_space("text")
    assert isinstance(space, TextSpace)
    vocabulary = max(size for size in (1000, 2000, VOCABULARY) if size <= data.preprocess.size)
    arch = architecture(space, kind, "pairs", TOKENS, vocabulary)
    return NetworkDescription.of_architecture(space, arch, data.output_size)


def best_of(data: TextData, kind: str, seed: int) -> tuple[torch.nn.Module, NetworkDescription, float, float]:
    """The network after the number of epochs that is best on the validation texts, and its figures on them and on the
    test texts."""
    description, found = network_for(data, kind), []
    for epochs in EPOCHS:
        recipe = task_named("text").recipe(epochs=epochs, seed=seed)
        network, _ = trained(description, data, ShortTraining(recipe), validates="last")
        val, test = (
            merit_of(logits_of(network, part), part)
            for part in (data.for_input(split, description.signature.input) for split in ("val", "test"))
        )
        found.append((val, -epochs, test, network))
    val, _, test, network = max(found, key=lambda row: row[:2])
    return network, description, val, test


def write(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label", "split"), *rows])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a table with a column of splits")
    parser.add_argument("--labelled", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kind", action="append", help="of students; default: bag and text CNN")
    options = parser.parse_args()
    task = task_named("text")
    rows, _ = read_table(options.data)
    train = [row for row in rows if row[2] == "train"]
    held = [row for row in rows if row[2] != "train"]
    whole = task.load(str(options.data), seed=0)
    network, description, val, test = best_of(whole, "text CNN", 0)
    print(f"{len(train)} / {len(whole.val)} / {len(whole.test)} texts, {torch.get_num_threads()} threads of "
          f"{fingerprint().cpu_model}; teacher: val {val:.3f}, test {test:.3f}", flush=True)  # fmt: skip
    teacher = OwnTeacher(
        name="teacher", network=network, input=description.signature.input, preprocess=whole.preprocess,
        sha256=checksum(network.state_dict()),
    )  # fmt: skip
    print("| student | seed | linear model, test | alone, test | taught, test | taught - alone |")
    print("|---|---|---|---|---|---|")
    for kind in options.kind or ("bag", "text CNN"):
        gains = []
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(train))
            few, rest = order[: options.labelled], order[options.labelled :]
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                table = write(place / "few.csv", [*(train[at] for at in few), *held])
                more = write(place / "more.csv", [(train[at][0], "", "") for at in rest])
                data = task.load(str(table), seed=0)
                taught = TextTeaching().taught(
                    data, teacher, unlabelled=str(more), within_s=math.inf, progress=SilentProgress()
                )  # fmt: skip
            alone, learnt = (best_of(each, kind, seed)[3] for each in (data, taught))
            linear = task.floors(data, seed)[1].test
            gains.append(100 * (learnt - alone))
            print(f"| {kind} | {seed} | {linear:.3f} | {alone:.3f} | {learnt:.3f} | {gains[-1]:+.1f} |", flush=True)
        print(f"| {kind} | mean | | | | {np.mean(gains):+.1f} +- {np.std(gains, ddof=1):.1f} |", flush=True)


if __name__ == "__main__":
    main()
