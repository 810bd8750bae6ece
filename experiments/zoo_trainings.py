"""Trainings of well-known networks and of winners with one recipe, over seeds: one JSON line per finished training."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from nas.data import ImageData
from nas.data.images import image_input
from nas.errors import UnknownNameError, UserError
from nas.files.writing import write_json
from nas.finetune.finished import finish
from nas.networks.description import NETWORK, NetworkDescription, load_network
from nas.networks.run_networks import numbered_network, split_number
from nas.tasks import TaskData, task_of
from nas.tasks.examples import examples_of
from nas.training.folder import BEST, STATE, DivergedError, kept_setup, train_in
from nas.training.loop import Training
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback
from nas.training.world import World, joined_world

BASELINES = (
    "resnet10_w50", "resnet10_w75", "resnet10", "resnet18", "resnet50",
    "mobilenet_v3_large", "efficientnet_b0", "regnet_y_400mf",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contestant:
    """A network to train."""

    name: str
    description: NetworkDescription
    winner: bool


def contestants(zoo: Sequence[str], winners: Sequence[str], data: TaskData, resolution: int | None) -> list[Contestant]:
    """Winners (`RUN#k`) at their resolution, then networks of the task's zoo, at `resolution` (default: the data's).

    Raises:
        UserError: an unknown name, or no such network of a run.
    """
    known = task_of(data).baselines
    unknown = next((name for name in zoo if name not in known), None)
    if unknown is not None:
        raise UnknownNameError("network", unknown, known)
    found = []
    for text in winners:
        numbered = split_number(text)
        if numbered is None:
            raise UserError(f"{text!r} names no winner", "write RUN#1")
        run, rank = numbered
        described = numbered_network(run, rank).description
        found.append(Contestant(f"{run.name}#{rank}", described.resized(data.output_size), True))
    entry = image_input(resolution) if resolution else data.train.input
    return found + [
        Contestant(name, NetworkDescription.of_baseline(name, data.output_size, entry), False) for name in zoo
    ]


@dataclass(frozen=True, slots=True)
class Trainings:
    """A folder with finished trainings; several processes may add to it at once."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "trainings.jsonl"

    def settle(self, settings: dict[str, Any]) -> None:
        """Record what all trainings share.

        Raises:
            UserError: the folder holds trainings with other settings.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "settings.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        plain = json.loads(json.dumps(settings))
        if known is None:
            write_json(path, plain)
        elif known != plain:
            changed = ", ".join(sorted(key for key in plain if known.get(key) != plain[key]))
            raise UserError(f"'{self.folder}' holds trainings with another {changed}", "give another --out")

    def finished(self) -> list[dict[str, Any]]:
        """All lines, in the order of their end; a line cut short by a kill is no line."""
        if not self.log.exists():
            return []
        lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def network_file(self, name: str, seed: int) -> Path:
        return self.folder / name / f"seed{seed}" / NETWORK

    def train(
        self, contestant: Contestant, seed: int, data: ImageData, recipe: Recipe,
        on_epoch: EpochCallback = lambda record: None,
    ) -> None:  # fmt: skip
        """Train, save the weights, then write the line; nothing where the line exists.

        A training that was interrupted goes on after its last finished epoch. One that diverges gets a line too.

        Raises:
            UserError: the line exists, but for another network of this name; the disk is full.
        """
        described = contestant.description.to_json()
        known = [t for t in self.finished() if t["network"] == contestant.name]
        if any(t["description"] != described for t in known):
            raise UserError(f"'{self.folder}' holds another network named {contestant.name!r}", "give another --out")
        if any(t["seed"] == seed for t in known):
            return
        folder = self.network_file(contestant.name, seed).parent
        with joined_world() as world:
            place = folder / "training"
            training = training_of(contestant, data, recipe.changed(seed=seed), place, world)
            stopped = None
            try:
                train_in(place, training, on_epoch)
                finish(training, contestant.description, data, folder, best=place / BEST)
            except DivergedError as error:
                stopped = str(error)
        line = {
            "network": contestant.name,
            "winner": contestant.winner,
            "description": described,
            "seed": seed,
            "epochs": len(training.curve),
            "stopped": stopped,
            "curve": [asdict(record) for record in training.curve],
            "seconds": sum(record.seconds for record in training.curve),
            **asdict(training.setup),
            "params": sum(p.numel() for p in training.network.parameters()),
        }
        # A kill may have cut the last line: what follows must not be glued to it.
        torn = self.log.exists() and not self.log.read_bytes().endswith(b"\n")
        with self.log.open("a", encoding="utf-8") as log:
            log.write(("\n" if torn else "") + json.dumps(line) + "\n")
        # With the optimiser's state it is three times as large as the network.
        (place / STATE).unlink(missing_ok=True)

    def load(self, training: dict[str, Any]) -> tuple[Any, NetworkDescription]:
        """The trained network and what it is."""
        path = self.network_file(training["network"], training["seed"])
        description = NetworkDescription.from_json(json.loads(path.read_text(encoding="utf-8")))
        return load_network(path, fold=False), description


def training_of(contestant: Contestant, data: ImageData, recipe: Recipe, folder: Path, world: World) -> Training:
    """The training of a network from random weights, from where its folder says."""
    description = contestant.description
    examples = examples_of(data, description.signature.input, validate_on=recipe.validate_on)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        network = description.build()
    objective = task_of(data).objective(network, examples, recipe, device=world.device)
    return Training(network, objective, recipe, world=world, setup=kept_setup(folder))


def shortened(data: ImageData, train: int | None, val: int | None) -> ImageData:
    """The same with at most so many training and validation images, drawn at random; the test split stays whole."""
    return replace(
        data,
        train=data.train if train is None else data.train.some(train),
        val=data.val if val is None else data.val.some(val),
    )


def epoch_core_seconds(contestant: Contestant, data: ImageData, recipe: Recipe) -> float:
    """Processor time of one epoch with its validation: other processes may run, so not wall-clock time."""
    twice = recipe.changed(epochs=2)
    spent = [time.process_time()]
    with TemporaryDirectory() as folder, joined_world() as world:
        training = training_of(contestant, data, twice, Path(folder), world)
        # The first steps of a network prepare its kernels.
        train_in(Path(folder), training, lambda record: spent.append(time.process_time()))
    return spent[-1] - spent[-2]


def accuracies_of(training: Mapping[str, Any]) -> list[float]:
    """Validation accuracy (fraction) after each epoch."""
    return [float(epoch["val_accuracy"]) for epoch in training["curve"]]
