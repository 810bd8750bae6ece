"""Trainings of well-known networks and of winners with one recipe, over seeds: one JSON line per finished training."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nas.bench.models import NETWORK_FILE, winner_folder
from nas.data import ImageData
from nas.errors import UnknownNameError, UserError
from nas.evaluation.short_training import ShortTraining, trained
from nas.export.checkpoint import NetworkDescription, load_network, save_network, write_json
from nas.tasks import TaskData, task_of
from nas.training.config import TrainConfig

OPPONENTS = (
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
    """Networks of the task's zoo, at `resolution` (the data's own by default), and winners (`RUN#k`) at theirs.

    Raises:
        UserError: an unknown name, or no such winner.
    """
    known = task_of(data).zoo
    unknown = next((name for name in zoo if name not in known), None)
    if unknown is not None:
        raise UnknownNameError("network", unknown, known)
    found = [
        Contestant(name, NetworkDescription(name, data.num_classes, resolution or data.native_resolution), False)
        for name in zoo
    ]
    for text in winners:
        run, _, rank = text.rpartition("#")
        if not run:
            raise UserError(f"{text!r} names no winner", "write RUN#1")
        path = winner_folder(Path(run), rank) / NETWORK_FILE
        described = NetworkDescription.from_json(json.loads(path.read_text(encoding="utf-8")))
        name = f"{Path(run).name}#{rank}"
        found.append(Contestant(name, replace(described, num_classes=data.num_classes), True))
    return found


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
        return self.folder / name / f"seed{seed}" / NETWORK_FILE

    def train(self, contestant: Contestant, seed: int, data: ImageData, config: TrainConfig, threads: int) -> None:
        """Train, save the weights, then write the line; nothing where the line exists.

        Raises:
            UserError: the line exists, but for another network of this name.
        """
        described = contestant.description.to_json()
        known = [t for t in self.finished() if t["network"] == contestant.name]
        if any(t["description"] != described for t in known):
            raise UserError(f"'{self.folder}' holds another network named {contestant.name!r}", "give another --out")
        if any(t["seed"] == seed for t in known):
            return
        started = time.process_time()
        network, result = trained(contestant.description, data, ShortTraining(replace(config, seed=seed)))
        path = self.network_file(contestant.name, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_network(network, contestant.description, path)
        line = {
            "network": contestant.name,
            "winner": contestant.winner,
            "description": described,
            "seed": seed,
            "epochs": len(result.curve),
            "stopped": result.stopped,
            "val_accuracy": result.accuracy,
            "curve": [asdict(epoch) for epoch in result.curve],
            "seconds": result.seconds,
            "core_seconds": time.process_time() - started,
            "images_per_s": result.images_per_second,
            "precision": result.precision,
            "threads": threads,
            "params": sum(p.numel() for p in network.parameters()),
        }
        # A kill may have cut the last line: what follows must not be glued to it.
        torn = self.log.exists() and not self.log.read_bytes().endswith(b"\n")
        with self.log.open("a", encoding="utf-8") as log:
            log.write(("\n" if torn else "") + json.dumps(line) + "\n")

    def load(self, training: dict[str, Any]) -> tuple[Any, NetworkDescription]:
        """The trained network and what it is."""
        path = self.network_file(training["network"], training["seed"])
        description = NetworkDescription.from_json(json.loads(path.read_text(encoding="utf-8")))
        return load_network(path, fold=False), description


def epoch_core_seconds(contestant: Contestant, data: ImageData, config: TrainConfig, images: int) -> float:
    """Processor time of one epoch on `images` training images and a sixth as many of val.

    Not wall-clock time: other processes may run.
    """
    few = replace(data, train=data.train.some(images), val=data.val.some(max(2, images // 6)), _resized={})
    once = ShortTraining(replace(config, epochs=1))
    # The first steps of a network prepare its kernels.
    trained(contestant.description, replace(few, train=few.train.some(config.batch_size), _resized={}), once)
    started = time.process_time()
    trained(contestant.description, few, once)
    return time.process_time() - started


def accuracies_of(training: Mapping[str, Any]) -> list[float]:
    """Validation accuracy (fraction) after each epoch."""
    return [float(epoch["val_accuracy"]) for epoch in training["curve"]]
