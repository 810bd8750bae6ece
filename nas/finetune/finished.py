"""The end of a training: the best, last and average weights, finished and compared on the validation examples."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from nas.data.images import Preprocess
from nas.files.tensors import load_tensors, save_tensors
from nas.files.writing import write_json
from nas.networks.description import NetworkDescription
from nas.networks.find import LABELS
from nas.tasks import TaskData, task_named
from nas.training.batch_norm import recalibrate_batch_norm
from nas.training.folder import BEST
from nas.training.loop import Training
from nas.training.objective import random_inputs
from search_spaces.modules import folded

_AVERAGE_IMAGES = 1024
"""Training images for the statistics of averaged weights, where the recipe does not say."""


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A trained network, as it is delivered."""

    network: nn.Module
    """The network in evaluation mode, not folded."""
    accuracy: float
    """Fraction of the validation images, of the folded network in fp32: what an export starts from."""
    kind: str
    """`best`, `last` or `average`."""
    accuracies: Mapping[str, float]
    """Accuracy of each kind there is."""


def finish(
    training: Training, description: NetworkDescription, data: TaskData, folder: Path, *, best: Path | None = None
) -> Finished:
    """Measure batch-norm statistics afresh where wanted, save every kind as a pair of files, and choose one.

    Writes `best`, `last` and `average` (`.network.json` and `.safetensors`), and the chosen one as `model`; beside them
    the names of the classes and the pre-processing, which `nas export` keeps to: they are those of the data that the
    network was trained on, where its run had others.

    Args:
        training: at its end.
        description: of its network.
        data: that it was trained on.
        folder: to write into.
        best: file of the best weights; None: in `folder`, where `train_in` leaves it.
    """
    wanted = training.recipe.checkpoints.deliver
    networks = {
        kind: _finished(training, kind, state) for kind, state in _states(training, best or folder / BEST).items()
    }
    # In fp32, whatever the training's precision: so is the accuracy before it, and an export starts from fp32.
    accuracies = {
        kind: training.objective.validate(folded(network), "fp32").accuracy for kind, network in networks.items()
    }
    for kind, network in networks.items():
        save_pair(folder, kind, network, description, {"val_accuracy": accuracies[kind]})
    # An early end leaves no average.
    kind = wanted if wanted in networks else max(accuracies, key=lambda k: accuracies[k])
    write_artifacts(folder, data.classes, description, data.preprocess)
    save_pair(folder, "model", networks[kind], description, {"kind": kind, "val_accuracy": accuracies[kind]})
    return Finished(networks[kind], accuracies[kind], kind, accuracies)


def save_pair(
    folder: Path, name: str, network: nn.Module, description: NetworkDescription, story: Mapping[str, object]
) -> None:
    """Write `NAME.network.json` and `NAME.safetensors`, the weights first."""
    save_tensors(folder / f"{name}.safetensors", network.state_dict(), story)
    write_json(folder / f"{name}.network.json", description.to_json())


def write_artifacts(
    folder: Path, classes: Sequence[str], description: NetworkDescription, preprocess: Preprocess
) -> None:
    """`labels.json` and `preprocess.json` (and what else the task has) of a trained network."""
    write_json(folder / LABELS, list(classes))
    for name, document in task_named(description.task).artifacts.documents(preprocess, description.signature).items():
        write_json(folder / name, document)


def _states(training: Training, best: Path) -> dict[str, dict[str, torch.Tensor]]:
    states = {"last": training.network.state_dict()}
    if best.exists():
        states["best"] = load_tensors(best)[0]
    average = training.last_epochs.mean()
    if average is not None:
        states["average"] = average
    return states


def _finished(training: Training, kind: str, state: Mapping[str, torch.Tensor]) -> nn.Module:
    network = copy.deepcopy(training.network)
    network.load_state_dict(state)
    count = training.recipe.recalibrate_images
    if kind == "average":
        count = count or _AVERAGE_IMAGES
    if count:
        recalibrate_batch_norm(network, random_inputs(training.objective, count, seed=training.recipe.seed))
    return network.eval()
