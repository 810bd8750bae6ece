"""Networks to train, found by the names that people give them."""

import copy
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas.data.images import Preprocess, square_input
from nas.data_options import DataSource
from nas.errors import UserError
from nas.networks.derived import source_key
from nas.networks.description import NetworkDescription
from nas.networks.find import FoundNetwork, find_networks
from nas.networks.heads import answer_for, named_otherwise, same_names
from nas.networks.libraries import baseline_names
from nas.networks.starting import StartingNetwork, network_to_start_from
from nas.networks.trained_on import data_of_run, trained_on
from nas.networks.weights import load_weights
from nas.tasks import TaskData, task_named, task_of_baseline
from nas.tasks.same_data import require_same_data


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A network to train."""

    rank: int
    """Number of the network in `RUN#k`, see `nas.networks.run_networks`."""
    description: NetworkDescription
    weights: Path | None = None
    """File of the weights from which a training may start; None: random ones."""
    sha256: str | None = None
    """Checksum of the file `weights`, where that was recorded, or of the tensors of `start`."""
    start: StartingNetwork | None = None
    """A library's trained network, in place of a file."""
    preprocess: Any | None = None
    """The `TaskData.preprocess` that the weights of the file were trained with; None where no file tells."""
    labels: tuple[str, ...] | None = None
    """Names of the classes that the weights of the file are for, in their order; None where no file tells."""

    @property
    def name(self) -> str:
        return source_key(self.description.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Networks to train, and what is known of where they come from."""

    text: str
    """As typed."""
    task: str
    """Reference of the networks' task, see `nas.tasks.task_named`."""
    folder: Path
    """The run's where one was named, else the network's own: `finetune` in it is where results go."""
    candidates: tuple[Candidate, ...] = ()
    library: FoundNetwork | None = None
    """A library's network, instead of candidates: what it is depends on the data."""
    data: DataSource | None = None
    """The data that the first network was trained on; None where no file tells."""
    run: Path | None = None
    """The run that the first network is of."""


def chosen_networks(text: str, top: int) -> Chosen:
    """The `top` first networks of the run that `text` names, or the one network that it names.

    Raises:
        UserError: no such run or network, or damaged files; see `nas.networks.find.find_networks`.
    """
    found = find_networks(text, top)
    first = found[0]
    if first.published is not None:
        task = task_of_baseline(baseline_names(first)[0])
        folder = Path("runs") / f"{first.kind}-{first.published}".replace(":", ".")
        return Chosen(text=text, task=task, folder=folder, library=first)
    assert first.description is not None
    named = first.run if first.rank is not None else None
    return Chosen(
        text=text,
        task=first.description.task,
        candidates=tuple(map(_candidate, found)),
        folder=named if named is not None else first.folder,
        data=trained_on(first),
        run=first.run,
    )


def load_data(chosen: Chosen, data: str | None) -> tuple[TaskData, DataSource]:
    """The data set named, or else the one that the network was trained on, with the splits that it has seen; and how
    to find it again.

    Raises:
        UserError: no file says what its data were, or they cannot be loaded, or they changed since the run was begun.
    """
    known = chosen.data
    if data is not None:
        source = replace(known, source=data) if known is not None else DataSource(source=data, seed=0)
    elif known is not None:
        source = known
    else:
        raise UserError(f"'{chosen.text}' does not say what its data are", "name them: --data NAME or --data FOLDER")
    found: TaskData = task_named(chosen.task).load(source.source, seed=source.seed, options=source.options)
    if chosen.run is not None and source == data_of_run(chosen.run):
        require_same_data(chosen.run, found)
    return found, source


def networks_for(
    chosen: Chosen, data: TaskData, *, side: int | None = None, seed: int = 0
) -> tuple[tuple[Candidate, ...], TaskData]:
    """The networks to train, and the data as they are to see them.

    Args:
        chosen: what somebody named.
        data: that they are to be trained on. Of a library's network they are normalised as it was trained with.
        side: rows and columns of the input of a library's network; None: those of the images.
        seed: of its last layer, where it is for other classes.

    Raises:
        UserError: a size was given to a network that has its own, or as `network_to_start_from`.
    """
    if chosen.library is None:
        if side is not None:
            raise UserError(
                f"--resolution {side}: the input of '{chosen.text}' is known",
                "leave it out, or name a library's network",
            )
        return chosen.candidates, data
    input = data.train.input if side is None else square_input(data.train.input, side)
    start = network_to_start_from(chosen.library, data, input, seed)
    candidate = Candidate(rank=1, description=start.description, sha256=start.sha256, start=start)
    return (candidate,), prepared_for(start, data)


def prepared_for(start: StartingNetwork, data: TaskData) -> TaskData:
    """The data normalised as the network was trained, framed as they are."""
    return data if start.preprocess is None else _by(start.preprocess, data)


def as_trained(candidate: Candidate, data: TaskData, *, scratch: bool) -> TaskData:
    """The data as the network that goes on from a file was trained to see them, where all of its weights are kept.

    Weights and the statistics of the input belong together: others would shift every layer. A network that begins anew,
    or with a new last layer, is trained by the data's own. Those of a library's network are `prepared_for` it already.
    """
    if scratch or candidate.preprocess is None or candidate.description.signature.output.size != data.output_size:
        return data
    others = other_labels(candidate, data)
    return data if others is not None and not same_names(others, data.classes) else _by(candidate.preprocess, data)


def other_labels(candidate: Candidate, data: TaskData) -> tuple[str, ...] | None:
    """The names of the classes that the weights are for, where those of the data are as many, but others or in another
    order."""
    return candidate.labels if named_otherwise(candidate.labels, candidate.description, data.classes) else None


def _by(preprocess: Any, data: TaskData) -> TaskData:
    """The data with another `preprocess`; pictures stay framed as they were read."""
    if isinstance(preprocess, Preprocess) and isinstance(data.preprocess, Preprocess):
        preprocess = replace(preprocess, framing=data.preprocess.framing)
    return data.with_preprocess(preprocess)


def starting_network(candidate: Candidate, data: TaskData, seed: int, *, scratch: bool) -> tuple[nn.Module, str]:
    """The network to train, and where its weights come from: `trained`, `trained without head` or `scratch`.

    The last layer starts anew where the size of the answer has changed, or the names of the classes. Where only their
    order has, its rows are put in that of the data.

    Raises:
        UserError: the weights are damaged, were changed, or are of another architecture.
    """
    if candidate.start is not None and not scratch:
        return copy.deepcopy(candidate.start.network), "trained" if candidate.start.whole else "trained without head"
    size = data.output_size
    description = candidate.description.resized(size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = description.build()
    if scratch or candidate.weights is None:
        return network, "scratch"
    classes = (candidate.description.signature.output.size[0], size[0])
    whole = load_weights(network, candidate.weights, sha256=candidate.sha256, classes=classes)
    others = other_labels(candidate, data)
    if others is not None:
        whole = answer_for(network, description, others, data.classes, seed)
    return network, "trained" if whole else "trained without head"


def _candidate(found: FoundNetwork) -> Candidate:
    assert found.description is not None
    return Candidate(
        rank=found.rank or 1,
        description=found.description,
        weights=found.weights,
        sha256=found.sha256,
        preprocess=found.preprocess(found.description.task),
        labels=found.labels(),
    )


def parameters(network: nn.Module) -> int:
    """Number of a network's parameters."""
    return sum(math.prod(p.shape) for p in network.parameters())
