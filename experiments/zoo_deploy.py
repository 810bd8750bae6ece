"""Trained networks in their best deployments: accuracy in the runtime for every seed, latency in one session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.zoo_trainings import Trainings, accuracies_of
from experiments.zoo_verdicts import Row, last_gain
from nas.controller.runs.records import deployed_network, figures_on_test
from nas.data import ImageData
from nas.data.images import image_side
from nas.deploy.choosing import no_rejection
from nas.deploy.tried import Deployed
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.measure.site import this_host
from nas.runtimes import deployments_here

MAX_DROP = 0.01
"""Validation accuracy (fraction) that a faster deployment may cost."""


@dataclass(frozen=True, slots=True)
class BestDeployment:
    """One network: its seeds' trainings, and the request that measures it (all seeds are equally fast)."""

    trainings: tuple[Mapping[str, Any], ...]
    request: MeasureRequest
    resolution: int
    accuracies: tuple[float, ...]
    """Test split, in the runtime, one per training."""


def best_deployments(
    trainings: Trainings, finished: Sequence[dict[str, Any]], data: ImageData, threads: int
) -> list[BestDeployment]:
    """The fastest acceptable deployment of every network's first seed; the other seeds are deployed in the same.

    Raises:
        UserError: a network that no runtime here can run.
    """
    by_network: dict[str, list[dict[str, Any]]] = {}
    for training in sorted(finished, key=lambda t: t["seed"]):
        by_network.setdefault(training["network"], []).append(training)
    return [_best(trainings, seeds, data, threads) for seeds in by_network.values()]


def _best(trainings: Trainings, seeds: Sequence[dict[str, Any]], data: ImageData, threads: int) -> BestDeployment:
    first = _deployed(trainings, seeds[0], data, deployments_here(threads), choose=True)
    chosen = first.chosen
    if chosen is None or chosen.path is None:
        reasons = "; ".join(f"{t.deployment.name} {t.reason}" for t in first.tried)
        raise UserError(f"{seeds[0]['network']} has no acceptable deployment: {reasons}")
    accuracies = [_test_accuracy(first, data)]
    for training in seeds[1:]:
        accuracies.append(_test_accuracy(_deployed(trainings, training, data, [chosen.deployment], choose=False), data))
    return BestDeployment(
        tuple(seeds),
        MeasureRequest(chosen.path, chosen.deployment),
        image_side(first.description.signature.input),
        tuple(accuracies),
    )


def _deployed(
    trainings: Trainings, training: dict[str, Any], data: ImageData, deployments: Sequence[Deployment], *, choose: bool
) -> Deployed:
    """Made once, then read."""
    network, description = trainings.load(training)
    # With a bound instead of a measurement nothing is timed: there is nothing to choose among one.
    bound = None if choose else (lambda _deployment: 0.0)
    return deployed_network(
        _folder(trainings, training), network, description, data, deployments,
        max_drop=MAX_DROP, rejection=no_rejection, site=this_host() if choose else None, upper_bound=bound,
    )  # fmt: skip


def _folder(trainings: Trainings, training: Mapping[str, Any]) -> Path:
    return trainings.network_file(training["network"], training["seed"]).parent / "deployed"


def _test_accuracy(deployed: Deployed, data: ImageData) -> float:
    chosen = deployed.chosen
    assert chosen is not None
    figures = figures_on_test(deployed.onnx.parent, chosen, data, deployed.description)
    return figures["accuracy"]


def measured_rows(best: Sequence[BestDeployment], threads: int, sessions: int) -> list[Row]:
    """All networks in one interleaved session: one call at a time, and as many streams as threads.

    Raises:
        UserError: a network that could not be measured.
    """
    single = [entry.request for entry in best]
    several = [MeasureRequest(r.path, r.deployment, threads) for r in single] if threads > 1 else []
    found = measure([*single, *several], sessions=sessions, timeout_s=300.0)
    failed = next((m for m in found if m.failed is not None), None)
    if failed is not None:
        raise UserError(f"{failed.request.path} could not be measured: {failed.failed}")
    streams = found[len(single) :] or found[: len(single)]
    return [_row(entry, *timed) for entry, *timed in zip(best, found[: len(single)], streams, strict=True)]


def _row(entry: BestDeployment, one: Measurement, many: Measurement) -> Row:
    first = entry.trainings[0]
    return Row(
        name=first["network"],
        winner=first["winner"],
        deployment=one.request.deployment.name,
        resolution=entry.resolution,
        accuracies=entry.accuracies,
        p50_ms=one.p50_ms,
        images_per_s=1e3 / min(one.p50_ms, many.p50_ms),
        disturbed=one.verdict != "quiet" or many.verdict != "quiet",
        last_gain=fmean(last_gain(accuracies_of(t)) for t in entry.trainings),
        train_loss=fmean(float(t["curve"][-1]["train_loss"]) for t in entry.trainings),
        params=first["params"],
    )
