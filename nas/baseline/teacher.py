"""The network that was brought, judged before anything is made of it."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.deploy.tried import Deployed, TriedDeployment
from nas.errors import UserError
from nas.networks.description import NetworkDescription
from nas.networks.reference import Reference
from nas.runtimes import load_runtime
from nas.runtimes.base import run_in_batches
from nas.tasks import TaskData, task_of
from nas.text import percent
from search_spaces import Signature

LOOKED_AT = 512
"""Validation examples that normalisations are compared on."""
SURE = 3.0
"""Standard deviations that a network has to be above guessing before it is believed to know these classes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TeacherNetwork:
    """A trained network and what is known of it on the data at hand."""

    reference: Reference
    data: TaskData
    """Pre-processed as the network was trained."""
    accuracy: float
    """In torch, of the validation examples."""
    hits: NDArray[np.bool_]
    """(n,) whether it is right, in torch, for each validation example."""
    notes: tuple[str, ...] = ()

    @property
    def description(self) -> NetworkDescription:
        return self.reference.description


def evaluated_teacher(reference: Reference, data: TaskData) -> TeacherNetwork:
    """The network on the validation examples, with the pre-processing that it was trained with.

    Where nothing tells that, the usual ones are tried on some examples and the best is taken, with a note.

    Raises:
        UserError: the task counts no right answers, or the network is about as good as guessing.
    """
    task, signature = task_of(data), reference.description.signature
    notes: tuple[str, ...] = ()
    if reference.preprocess is not None:
        data = data.with_preprocess(reference.preprocess)
        found = {"its own": hit_share(reference, data, LOOKED_AT)}
    else:
        usual = {name: data.with_preprocess(p) for name, p in task.usual_preprocess(data).items()} or {"its own": data}
        found = {name: hit_share(reference, d, LOOKED_AT) for name, d in usual.items()}
        best = max(found, key=lambda name: found[name])
        data = usual[best]
        if len(found) > 1:
            told = ", ".join(f"{name} {percent(share)}" for name, share in found.items())
            notes = (
                f"nothing says how the baseline's input was normalised: {best} was taken, by its {task.metric} on "
                f"validation examples ({told})",
            )
    outputs = torch_outputs(reference, data)
    hits = task.hits(outputs, data.for_input("val", signature.input), signature)
    if hits is None:
        raise UserError(
            f"--baseline compares networks answer by answer, which {task.metric} of {task.name} does not allow yet",
            "leave out --baseline, and teach with it: --teacher",
        )
    accuracy = float(hits.mean())
    if accuracy <= guessing_bound(len(data.classes), len(hits)):
        told = ", ".join(f"{name} {percent(share)}" for name, share in found.items())
        raise UserError(
            f"{reference.text} is right in {percent(accuracy)} of the validation examples, about as often as guessing",
            f"are its classes those of the data, in their order? normalisations tried: {told}",
        )
    return TeacherNetwork(reference=reference, data=data, accuracy=accuracy, hits=hits, notes=notes)


def guessing_bound(classes: int, examples: int) -> float:
    """The share of right answers below which a network may well be guessing."""
    share = 1 / classes
    return share + SURE * math.sqrt(share * (1 - share) / examples)


def hit_share(reference: Reference, data: TaskData, count: int) -> float:
    """Share of right answers on some validation examples; 0 where the task counts none."""
    signature = reference.description.signature
    some = data.for_input("val", signature.input).some(count)
    hits = task_of(data).hits(_outputs(reference, data.inputs(some)), some, signature)
    return 0.0 if hits is None else float(hits.mean())


def torch_outputs(reference: Reference, data: TaskData) -> NDArray[np.float32]:
    """(n, ...) of all validation examples."""
    split = data.for_input("val", reference.description.signature.input)
    parts = np.array_split(np.arange(len(split)), max(1, len(split) // 256))
    return np.concatenate([_outputs(reference, data.inputs(split.take(part))) for part in parts])


def _outputs(reference: Reference, inputs: NDArray[Any]) -> NDArray[np.float32]:
    import torch

    with torch.inference_mode():
        given = torch.from_numpy(inputs)
        found = [reference.network(given[start : start + 64]) for start in range(0, len(given), 64)]
        return np.asarray(torch.cat(found).float().numpy(), np.float32)


def deployed_hits(tried: TriedDeployment, data: TaskData, split_name: Any, signature: Signature) -> NDArray[np.bool_]:
    """(n,) whether the deployed file, run by its runtime, is right for each example of a split.

    Raises:
        UserError: the task counts no right answers.
    """
    assert tried.path is not None
    session = load_runtime(tried.deployment.runtime).load(tried.path, tried.deployment)
    split = data.for_input(split_name, signature.input)
    parts = np.array_split(np.arange(len(split)), max(1, len(split) // 256))
    outputs = np.concatenate(
        [run_in_batches(session.run, data.inputs(split.take(part)), tried.deployment.batch) for part in parts]
    )
    hits = task_of(data).hits(outputs, split, signature)
    if hits is None:
        raise UserError(f"{data.task} counts no right answers", "leave out --baseline")
    return hits


def relocated(deployed: Deployed, folder: Path) -> Deployed:
    """The same with its files in `folder`."""
    tried = tuple(t if t.path is None else replace(t, path=folder / t.path.name) for t in deployed.tried)
    return replace(deployed, onnx=folder / deployed.onnx.name, tried=tried)
