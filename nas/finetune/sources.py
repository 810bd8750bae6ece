"""What is trained and who teaches it: a run's networks, pairs of files, and torchvision's networks."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nas.bundles.bundle import LABELS
from nas.bundles.receipt import RECEIPT
from nas.errors import UserError
from nas.files.tensors import Tensors, load_tensors
from nas.files.writing import sha256_of
from nas.networks.description import NETWORK, NetworkDescription, read_json, weights_path
from nas.networks.run_networks import (
    TRAINED,
    RunNetwork,
    numbered_network,
    read_run_json,
    run_folder,
    run_networks,
    split_number,
)
from nas.tasks import TaskData, task_named, task_of, task_of_baseline

if TYPE_CHECKING:
    from nas.training.distill import Teacher


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A network to train."""

    rank: int
    """Its number in `RUN#k`, see `nas.networks.run_networks`."""
    description: NetworkDescription
    weights: Path | None = None
    """Where a training may start; None: random."""
    sha256: str | None = None
    """Of the file `weights`, where that was recorded."""

    @property
    def name(self) -> str:
        source = self.description.source
        return source if isinstance(source, str) else source.key


def chosen_candidates(run: str, top: int) -> tuple[Path, list[Candidate]]:
    """The run's folder, and its `top` first networks or the one that `RUN#k` names.

    Raises:
        UserError: no such run or number, or damaged files.
    """
    numbered = split_number(run)
    if numbered is not None:
        return numbered[0], [_candidate(numbered_network(*numbered))]
    folder = run_folder(run)
    return folder, [_candidate(network) for network in run_networks(folder)[:top]]


def data_of(run: Path, data: str | None, task: str) -> TaskData:
    """The data set named, or else the one of the run, with the splits that the run has seen, loaded by `task`.

    Raises:
        UserError: the run does not say what its data were, or they cannot be loaded.
    """
    path = run / "config.json"
    config = read_run_json(path) if path.exists() else {}
    name = data or config.get("data")
    if not isinstance(name, str):
        raise UserError(f"the run '{run}' does not say what its data are", "name them: --data NAME or --data FOLDER")
    found: TaskData = task_named(task).load(name, seed=int(config.get("seed", 0)))
    return found


def starting_network(candidate: Candidate, num_classes: int, seed: int, *, scratch: bool) -> tuple[nn.Module, str]:
    """The network to train, and where its weights come from: `trained`, `trained without head` or `scratch`.

    The last layer starts anew where the number of classes has changed.

    Raises:
        UserError: the weights are damaged, were changed, or are of another architecture.
    """
    description = replace(candidate.description, num_classes=num_classes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = description.build()
    if scratch or candidate.weights is None:
        return network, "scratch"
    tensors, _ = load_tensors(candidate.weights)
    if candidate.sha256 is not None and sha256_of(candidate.weights) != candidate.sha256:
        raise UserError(f"'{candidate.weights}' was changed after the run", "get it again, or set start=scratch")
    old_classes = candidate.description.num_classes
    return network, load_matching(network, tensors, candidate.weights, old_classes, num_classes)


def load_matching(network: nn.Module, tensors: Tensors, path: Path, old_classes: int, new_classes: int) -> str:
    """Load all weights but those that have a row per class, where the number of classes differs.

    Raises:
        UserError: other tensors differ.
    """
    state = network.state_dict()
    heads = {
        name
        for name, tensor in tensors.items()
        if old_classes != new_classes
        and name in state
        and (tensor.shape[:1], state[name].shape[:1]) == ((old_classes,), (new_classes,))
        and tensor.shape[1:] == state[name].shape[1:]
    }
    wrong = sorted(state.keys() ^ tensors.keys())
    wrong += [n for n in state if n in tensors and n not in heads and state[n].shape != tensors[n].shape]
    if wrong:
        raise UserError(
            f"'{path}' holds the weights of another network: {len(wrong)} tensors differ, the first is {wrong[0]!r}",
            "give the weights of this architecture, or set start=scratch",
        )
    network.load_state_dict({**state, **{n: t for n, t in tensors.items() if n not in heads}})
    return "trained without head" if heads else "trained"


def teacher_of(text: str, num_classes: int, resolution: int) -> Candidate:
    """The network that `load_teacher` loads.

    Raises:
        UserError: there is none of that name.
    """
    if not text:
        raise UserError("the recipe needs a teacher", "name one: --set distillation.teacher=RUN#1")
    if text.startswith("torchvision:"):
        return _torchvision(text, num_classes, resolution)
    path = Path(text).expanduser()
    if text.endswith(".network.json"):
        return pair(path)
    if (path / NETWORK).is_file():
        return pair(path / NETWORK)
    return chosen_candidates(text, 1)[1][0]


def load_teacher(text: str, data: TaskData, resolution: int, device: torch.device) -> "Teacher":
    """The teacher that `RUN#k`, `NAME.network.json`, a folder with such a file or `torchvision:NAME:FILE` names.

    Args:
        resolution: of the network to be taught, in pixels. A torchvision network and a detector look at images of this
            size, others at those that they were trained with: only the cells of a detector have to be the same. All see
            them normalised as the `preprocess.json` beside their weights says, without one as the student does.

    Raises:
        UserError: there is none of that name, its file is damaged, or it knows other classes.
    """
    from nas.training.distill import Teacher, rescaling

    candidate = teacher_of(text, data.num_classes, resolution)
    if candidate.description.task != data.task:
        raise UserError(
            f"the teacher {text!r} is for {candidate.description.task}, the data are for {data.task}",
            "give a teacher that was trained on these data",
        )
    if candidate.description.num_classes != data.num_classes:
        raise UserError(
            f"the teacher {text!r} knows {candidate.description.num_classes} classes, the data have {data.num_classes}",
            "give a teacher that was trained on these data",
        )
    assert candidate.weights is not None
    labels = candidate.weights.with_name(LABELS)
    if labels.is_file() and read_json(labels) != list(data.classes):
        raise UserError(
            f"the teacher {text!r} knows other classes than {data.name!r} has, or in another order",
            "give a teacher that was trained on these data",
        )
    network, _ = starting_network(candidate, data.num_classes, 0, scratch=False)
    network.eval().requires_grad_(False).to(device)
    own = candidate.description
    preprocess = task_of(data).artifacts.read_preprocess(candidate.weights.parent)
    rescale = rescaling(data.preprocess, preprocess) if preprocess is not None else None
    if rescale is not None:
        rescale = rescale[0].to(device), rescale[1].to(device)
    return Teacher(network, own.resolution if own.head_kind is None else resolution, text, rescale)


def pair(path: Path) -> Candidate:
    """The network of `NAME.network.json` with its weights beside it."""
    return Candidate(rank=1, description=NetworkDescription.from_json(read_run_json(path)), weights=weights_path(path))


def _torchvision(text: str, num_classes: int, resolution: int) -> Candidate:
    parts = text.split(":", 2)
    if len(parts) != 3:
        raise UserError(f"the teacher {text!r} names no weights", "write torchvision:NAME:FILE.safetensors")
    task_of_baseline(parts[1])  # refuses unknown names
    return Candidate(rank=1, description=NetworkDescription(parts[1], num_classes, resolution), weights=Path(parts[2]))


def _candidate(network: RunNetwork) -> Candidate:
    record = network.folder / (RECEIPT if network.winner else TRAINED)
    checksums: Any = read_run_json(record).get("sha256", {}) if record.exists() else {}
    weights = weights_path(network.file)
    return Candidate(
        rank=network.rank, description=network.description, weights=weights, sha256=checksums.get(weights.name)
    )


def parameters(network: nn.Module) -> int:
    """How many a network has."""
    return sum(math.prod(p.shape) for p in network.parameters())
