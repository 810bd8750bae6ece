"""Finished trainings and deployments as files that outlive the process, believed only where they are whole.

A folder holds one network: `model.network.json` with `model.safetensors`, and `trained.json` written after them;
`model.onnx` and the files of each deployment, and `deployed.json` written after those. Each record lists the checksums
of the files it speaks of. Whatever is killed, at any moment, leaves either a whole record or none.
"""

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.deploy.answers import Answers
from nas.deploy.choosing import Rejection, UpperBound, choose, doubt_of
from nas.deploy.deploy import deploy, deployed_figures, measured_again
from nas.deploy.onnx import Parity
from nas.deploy.tried import Deployed, TriedDeployment, files_of
from nas.deployment import Deployment
from nas.evaluation.short_training import ShortTraining, trained
from nas.files.records import read_record, write_record
from nas.files.writing import sha256_of, write_json
from nas.measure.host import HostFingerprint
from nas.measure.measurement import Measurement
from nas.measure.site import Site
from nas.networks.description import NETWORK, NetworkDescription, load_network, save_network
from nas.networks.run_networks import DEPLOYED, TRAINED
from nas.networks.weights import load_weights
from nas.targets.registry import material_differences
from nas.tasks import TaskData, task_of
from nas.training.recipe import Recipe
from nas.training.result import Stopped

if TYPE_CHECKING:
    from torch import nn

TEST = "test.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Outcome of a full training."""

    accuracy: float
    """Fraction of the validation split, in torch."""
    epochs: int
    """Finished ones: fewer than the recipe's where the time limit ended it."""
    seconds: float
    stopped: Stopped | None = None
    """Reason why it ended before its last epoch, if it did."""
    reused: bool = False
    """True if the outcome was read, not trained."""
    by_short_training: bool = False
    """True if its weights are those of the short training, which had reached more than the full one; the accuracy is
    theirs, epochs and seconds are of the full training all the same."""


@dataclass(frozen=True, slots=True)
class Before:
    """State of a network before its full training."""

    weights: Path
    """A safetensors file."""
    accuracy: float
    """Fraction of the validation split, in torch."""


def trained_network(
    folder: Path,
    description: NetworkDescription,
    data: TaskData,
    recipe: Recipe,
    before: Before | None = None,
    *,
    limit_s: float = math.inf,
) -> "tuple[nn.Module, Trained]":
    """The network trained with `recipe`; read from `folder` where it was trained with just this before.

    Where that reached less than it had `before`, it has those weights. `limit_s`: seconds after which the training ends
    where that is earlier than the recipe says; it counts as one with the recipe all the same.
    """
    found = read_trained(folder, description, recipe)
    if found is not None:
        known = {name: found[name] for name in ("accuracy", "epochs", "seconds")}
        later = {name: found[name] for name in ("stopped", "by_short_training") if name in found}  # than some records
        outcome = Trained(**known, **later, reused=True)
        return load_network(folder / NETWORK, fold=False), outcome
    limit_s = min(limit_s, math.inf if recipe.time_limit_s is None else recipe.time_limit_s)
    limited = recipe.changed(time_limit_s=limit_s) if math.isfinite(limit_s) else recipe
    network, result = trained(description, data, ShortTraining(limited), validates="last")
    outcome = Trained(
        accuracy=result.accuracy, epochs=len(result.curve), seconds=result.seconds, stopped=result.stopped
    )
    return network, keep_trained(folder, description, recipe, network, outcome, before)


def keep_trained(
    folder: Path,
    description: NetworkDescription,
    recipe: Recipe,
    network: "nn.Module",
    outcome: Trained,
    before: Before | None = None,
) -> Trained:
    """Write a network that was trained with `recipe`, and what came of it, into `folder`; returns that.

    Where the training reached less than the network had `before`, it gets those weights.
    """
    if before is not None and before.accuracy > outcome.accuracy:
        load_weights(network, before.weights)
        outcome = replace(outcome, accuracy=before.accuracy, by_short_training=True)
    folder.mkdir(parents=True, exist_ok=True)
    save_network(network, description, folder / NETWORK)
    document = {
        "recipe": recipe.to_json(),
        "network": description.to_json(),
        "accuracy": outcome.accuracy,
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "stopped": outcome.stopped,
        "by_short_training": outcome.by_short_training,
    }
    write_record(folder, TRAINED, document, files_of(folder / NETWORK))
    return outcome


def read_trained(folder: Path, description: NetworkDescription, recipe: Recipe) -> dict[str, Any] | None:
    """The record of a training with just this recipe; None where there is nothing to believe.

    A training that came to its end is the same under any time limit: none has cut it short.
    """
    found = read_record(folder, TRAINED, {"network": description.to_json()})
    if found is None:
        return None
    wanted = json.loads(json.dumps(recipe.to_json()))
    if isinstance(found.get("recipe"), dict) and found.get("stopped") is None:
        wanted["time_limit_s"] = found["recipe"].get("time_limit_s")
    return found if found.get("recipe") == wanted else None


def deployed_network(
    folder: Path,
    network: "nn.Module",
    description: NetworkDescription,
    data: TaskData,
    deployments: Sequence[Deployment],
    *,
    max_drop: float,
    rejection: Rejection,
    site: Site | None,
    upper_bound: UpperBound | None = None,
    slack: float | None = None,
    isa: Collection[str] | None = None,
    fewer_threads: Sequence[int] = (),
    left_s: Callable[[], float] = lambda: math.inf,
    expected_ms: Callable[[Deployment], float] = lambda deployment: 0.0,
    least_calls: int = 0,
) -> Deployed:
    """`deploy`, or what it found before where `folder` holds that; chosen by the present limits either way.

    What was measured in vain on a disturbed machine is measured again, and so are files that would be accepted by
    sessions of fewer than `least_calls`, those that the limits ask for: they were timed for other limits. A file that
    exceeds the limits by so few calls counts as missed. `site`: the machine it is measured on; None: not at all,
    `upper_bound` tells instead. The rest is as in `nas.deploy.deploy.deploy`.
    """
    known = read_deployed(folder, description, deployments, site)
    if known is not None:
        metric = task_of(data).metric_of(data)
        chosen = partial(
            choose, max_drop=max_drop, rejection=rejection, upper_bound=upper_bound, parity=known.parity, metric=metric,
            slack=slack,
        )  # fmt: skip
        found = replace(known, tried=tuple(chosen(known.tried)))
        doubted = doubt_of(found.tried, rejection) is not None

        def wanted(t: TriedDeployment) -> bool:
            return doubted or (t.accepted and _has_too_few_calls(t, least_calls))

        if site is None or not any(wanted(t) for t in found.tried):
            return found
        known = measured_again(found, site.measure, those=wanted)
        write_deployed(folder, known, site)
        tried = tuple(chosen(known.tried))
        return replace(known, tried=tried, doubt=doubt_of(tried, rejection))
    found = deploy(
        network, description, data, deployments,
        folder=folder, max_drop=max_drop, rejection=rejection, upper_bound=upper_bound,
        measurer=site.measure if site else None, slack=slack, isa=isa, fewer_threads=fewer_threads,
        left_s=left_s, expected_ms=expected_ms,
    )  # fmt: skip
    write_deployed(folder, found, site)
    return found


def _has_too_few_calls(t: TriedDeployment, least_calls: int) -> bool:
    return t.measurement is not None and any(s.calls < least_calls for s in t.measurement.sessions)


def write_deployed(folder: Path, deployed: Deployed, site: Site | None) -> None:
    document = {
        "network": deployed.description.to_json(),
        "measured_on": site.fingerprint.to_json() if site else None,
        "parity": deployed.parity.to_json() if deployed.parity else None,
        "tried": [_tried_to_json(t) for t in deployed.tried],
    }
    files = {deployed.onnx, *(f for t in deployed.tried if t.path is not None for f in files_of(t.path))}
    files.update(files_of(folder / NETWORK))  # with other weights this record is not about them
    write_record(folder, DEPLOYED, document, sorted(files))


def read_deployed(
    folder: Path, description: NetworkDescription, deployments: Sequence[Deployment], site: Site | None
) -> Deployed | None:
    """The deployments that `write_deployed` wrote for just this; None where there is nothing to believe."""
    document = read_record(folder, DEPLOYED, {"network": description.to_json()})
    if document is None or not same_site(document.get("measured_on"), site):
        return None
    tried = tuple(_tried_from_json(t, folder) for t in document["tried"])
    if {t.deployment for t in tried if not t.fewer_threads} != set(deployments):
        return None
    parity = Parity.from_json(document["parity"]) if document["parity"] else None
    return Deployed(description=description, onnx=folder / "model.onnx", parity=parity, tried=tried)


def same_site(recorded: dict[str, Any] | None, site: Site | None) -> bool:
    """True if a measurement on the machine with this fingerprint (None: a prediction) still counts for `site`."""
    if recorded is None or site is None:
        return recorded is None and site is None
    return not material_differences(HostFingerprint.from_json(recorded), site.fingerprint)


def figures_on_test(
    folder: Path, tried: TriedDeployment, data: TaskData, description: NetworkDescription
) -> dict[str, float]:
    """Figures of the deployed file on the test split, the metric first: looked at once and then remembered."""
    path = folder / TEST
    assert tried.path is not None
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    identity = f"{tried.deployment.name} {' '.join(sha256_of(file) for file in files_of(tried.path))}"
    if identity not in known:
        known[identity] = deployed_figures(tried, data, description)
        write_json(path, known)
    return dict(known[identity])


def _tried_to_json(t: TriedDeployment) -> dict[str, Any]:
    return {
        "deployment": asdict(t.deployment),
        "file": t.path.name if t.path is not None else None,
        "accuracy": t.accuracy,
        "answers": t.answers.to_json() if t.answers is not None else None,
        "measurement": t.measurement.to_json() if t.measurement is not None else None,
        "size_bytes": t.size_bytes,
        "in_float": t.in_float,
        "fewer_threads": t.fewer_threads,
        "mirrored": t.mirrored,
        "beside": t.beside.to_json() if t.beside is not None else None,
        "across": t.across.to_json() if t.across is not None else None,
        "reason": t.reason if t.path is None else "",
    }


def _tried_from_json(document: dict[str, Any], folder: Path) -> TriedDeployment:
    deployment = Deployment(**document["deployment"])
    path = folder / document["file"] if document["file"] is not None else None
    measurement, beside, across = (
        Measurement.from_json(document[name]) if document.get(name) is not None else None
        for name in ("measurement", "beside", "across")
    )
    if path is not None:
        measurement, beside, across = (
            m and replace(m, request=replace(m.request, path=path)) for m in (measurement, beside, across)
        )
    return TriedDeployment(
        deployment=deployment,
        path=path,
        accuracy=document["accuracy"],
        answers=Answers.from_json(document["answers"]) if document.get("answers") is not None else None,
        measurement=measurement,
        beside=beside,
        across=across,
        size_bytes=document["size_bytes"],
        in_float=document["in_float"],
        fewer_threads=document.get("fewer_threads", False),
        mirrored=document.get("mirrored", False),
        reason=document["reason"],
    )
