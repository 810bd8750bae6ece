"""What `nas export` is asked for: a winner of a run, a pair of files, or an architecture with weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.bundles.bundle import LABELS
from nas.bundles.receipt import RECEIPT
from nas.data import Preprocess
from nas.deployment import Deployment, common_batch
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.limits import Limits
from nas.networks.description import NETWORK, NetworkDescription, read_description, read_json, weights_path
from nas.networks.run_networks import TARGET, TRAINED, numbered_network, split_number
from nas.networks.weights import load_weights
from nas.tasks import task_named
from nas.training.qat.quantised import FOLDER as QUANTISED
from nas.training.qat.quantised import QuantisedInTraining, read_quantised
from search_spaces import Architecture, load_search_space

if TYPE_CHECKING:
    from torch import nn

PAIR_SUFFIX = ".network.json"
RECORDS = (RECEIPT, TRAINED)
"""Files that may lie beside weights and list their checksum."""
RUN_DEPTH = 4
"""So many folders up a network's run is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a run was asked: the defaults for exporting a network of it."""

    folder: Path
    data: str
    seed: int
    target: str
    threads: int | None
    batch: int
    """Images in a call, as its target's profile was measured."""
    max_drop: float
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A network with weights, and what is known of how it was trained."""

    label: str
    """As asked for."""
    path: Path
    """The network's JSON file."""
    description: NetworkDescription | None
    """None where only the architecture is known: classes are the data's."""
    architecture: Architecture | None
    weights: Path
    run: RunSettings | None
    preprocess: Preprocess | None
    """What it was trained with; None where no file tells, then the data's own is used."""
    labels: tuple[str, ...] | None
    in_training: QuantisedInTraining | None
    """Where the network was quantised in training too, from just these weights."""
    rank: int | None = None
    """The k of `RUN#k`, where it was asked for by that."""

    @property
    def task(self) -> str:
        """Reference of the task it is for, see `nas.tasks.task_named`."""
        return _task(self.description, self.architecture)

    def described(self, num_classes: int) -> NetworkDescription:
        """The network for data with `num_classes`. Raises `UserError` where it has another number of outputs."""
        if self.description is None:
            assert self.architecture is not None
            space = load_search_space(self.architecture.space)
            return NetworkDescription(self.architecture, num_classes, space.resolution(self.architecture))
        if self.description.num_classes != num_classes:
            raise UserError(
                f"{self.label} has {self.description.num_classes} outputs, the data has {num_classes} classes",
                "give the data it was trained on with --data",
            )
        return self.description

    def load(self, description: NetworkDescription) -> "nn.Module":
        """The network with its weights, in eval mode. Raises `UserError` where they do not fit or were changed."""
        _check_recorded(self.weights)
        network = description.build()
        load_weights(network, self.weights)
        return network.eval()


def resolve(model: str, checkpoint: Path | None = None) -> Source:
    """Find the network that `model` names.

    Args:
        model: `RUN#k` (see `nas.networks.run_networks`) or `RUN`, which is `RUN#1`; `NAME.network.json` or a folder
            with `model.network.json`; or an architecture as `SearchSpace.to_json` writes it.
        checkpoint: weights; without, those beside the network's file.

    Raises:
        UserError: there is no such network, or it has no weights.
    """
    path = Path(model).expanduser()
    numbered = split_number(model)
    if numbered is None and (path / "config.json").is_file() and not (path / NETWORK).is_file():
        numbered = path, 1
    if numbered is not None:
        path = numbered_network(*numbered).file
    elif path.is_dir():
        path = path / NETWORK
    if not path.is_file():
        raise UserError(f"no such network: '{model}'", "give RUN#1, NAME.network.json, or ARCH.json with --checkpoint")
    description, architecture, weights = None, None, checkpoint
    if path.name.endswith(PAIR_SUFFIX):
        description = read_description(path)
        weights = checkpoint or weights_path(path)
    else:
        architecture = _architecture(path)
    if weights is None:
        raise UserError(
            f"'{model}' is an architecture without weights", "give its trained weights: --checkpoint FILE.safetensors"
        )
    run = _enclosing_run(path)
    task = _task(description, architecture)
    # First what lies beside the weights: a --checkpoint may have been trained on other data than the network's run.
    nearby = (weights.parent, path.parent, *([run.folder / "winners" / "1"] if run else []))
    return Source(
        label=model,
        path=path,
        description=description,
        architecture=architecture,
        weights=weights,
        run=run,
        preprocess=next((p for p in map(task_named(task).artifacts.read_preprocess, nearby) if p is not None), None),
        labels=next((names for names in map(_labels, nearby) if names is not None), None),
        in_training=read_quantised(path.parent / QUANTISED, weights),
        rank=numbered[1] if numbered is not None else None,
    )


def _task(description: NetworkDescription | None, architecture: Architecture | None) -> str:
    if description is not None:
        return description.task
    assert architecture is not None
    return load_search_space(architecture.space).task


def _architecture(path: Path) -> Architecture:
    if path.suffix != ".json":
        raise UserError(
            f"'{path}' is neither a network nor an architecture: those are JSON files",
            "give NAME.network.json with NAME.safetensors beside it, or ARCH.json with --checkpoint FILE.safetensors",
        )
    document = read_json(path)
    if not isinstance(document, Mapping) or not isinstance(document.get("space"), str):
        raise UserError(
            f"'{path}' is neither a network nor an architecture",
            "give NAME.network.json, or an architecture as a winner's architecture.json has it",
        )
    return load_search_space(document["space"]).from_json(document)


def _enclosing_run(path: Path) -> RunSettings | None:
    """The settings of the run whose folder `path` lies in."""
    for folder in list(path.absolute().parents)[:RUN_DEPTH]:
        trained = (folder / "winners").is_dir() or (folder / "finalists").is_dir()
        if not (trained and (folder / "config.json").is_file()):
            continue
        config = read_json(folder / "config.json")
        if isinstance(config, dict) and {"data", "seed", "target", "max_drop", "limits"} <= config.keys():
            return _settings(folder, config)
    return None


def _settings(folder: Path, config: dict[str, Any]) -> RunSettings:
    return RunSettings(
        folder=folder,
        data=config["data"],
        seed=config["seed"],
        target=config["target"],
        threads=config.get("threads"),
        batch=_batch(folder),
        max_drop=config["max_drop"],
        limits=Limits.of(**config["limits"]),
    )


def _batch(run: Path) -> int:
    """Images in a call of the run's deployments, by what the search knew of its target; 1 where no file tells."""
    path = run / TARGET
    if not path.is_file():
        return 1
    document: Any = read_json(path)
    try:
        return common_batch(Deployment(**entry["deployment"]) for entry in document["deployments"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' is not what a search wrote: {error}", "restore it, or search again") from error


def _labels(folder: Path) -> tuple[str, ...] | None:
    path = folder / LABELS
    if not path.is_file():
        return None
    document = read_json(path)
    return tuple(str(name) for name in document) if isinstance(document, list) else None


def _check_recorded(weights: Path) -> None:
    """Raises `UserError` where a record beside the weights lists another checksum of them."""
    for name in RECORDS:
        record = weights.with_name(name)
        if not (record.is_file() and weights.is_file()):
            continue
        try:
            listed = json.loads(record.read_text(encoding="utf-8"))["sha256"][weights.name]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
            continue
        if listed != sha256_of(weights):
            raise UserError(
                f"{weights} was changed after it was written: its checksum is not the one in {name}",
                "restore it, or train the network again",
            )
