"""From a trained network to the deployment that is handed over: every candidate tried, measured and given a reason."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data import ImageData
from nas.deployment import Deployment
from nas.errors import UserError
from nas.export.checkpoint import NetworkDescription, save_network
from nas.export.onnx import Parity, check_parity, export_onnx
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes import load_runtime
from nas.training.evaluate import accuracy_in_runtime

if TYPE_CHECKING:
    from torch import nn

CALIBRATION_IMAGES = 128
UNTRAINED_IMAGES = 8
"""Calibration images where only the speed is wanted, which does not depend on the ranges."""
PARITY_IMAGES = 64
FP32 = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedDeployment:
    """One deployment of one network: what came out, and whether it may be delivered."""

    deployment: Deployment
    path: Path | None
    """The file its runtime loads; None where it could not be made."""
    accuracy: float | None
    """Fraction of the validation split, in the runtime itself."""
    measurement: Measurement | None
    """None where the target is not this host, or nothing could be loaded."""
    accepted: bool = False
    chosen: bool = False
    reason: str = ""
    """Why it was rejected or not chosen; empty for the chosen one."""

    @property
    def p50_ms(self) -> float:
        return self.measurement.p50_ms if self.measurement is not None else math.nan

    def to_json(self) -> dict[str, Any]:
        measured = self.measurement
        return {
            "name": self.deployment.name,
            "p50_ms": measured.p50_ms if measured and measured.failed is None else None,
            "worst_session_p50_ms": measured.worst_session_p50_ms if measured and measured.failed is None else None,
            "accuracy": self.accuracy,
            "accepted": self.accepted,
            "chosen": self.chosen,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A network with all deployments that were tried."""

    description: NetworkDescription
    onnx: Path
    parity: Parity | None
    tried: tuple[TriedDeployment, ...]

    @property
    def chosen(self) -> TriedDeployment | None:
        """The deployment to deliver; None where none is acceptable."""
        return next((t for t in self.tried if t.chosen), None)


UpperBound = Callable[[Deployment], float]
"""The predicted upper latency bound (ms) of the network at hand, for targets that are not this host."""


def deploy(
    network: "nn.Module",
    description: NetworkDescription,
    data: ImageData,
    deployments: Sequence[Deployment],
    *,
    folder: Path,
    limit_ms: float | None,
    max_drop: float,
    upper_bound: UpperBound | None = None,
    sessions: int = 3,
    trained: bool = True,
) -> Deployed:
    """Export `network`, try `deployments`, and choose the fastest that keeps the limit and the accuracy.

    Accuracy is measured in each runtime on the validation split; the reference for `max_drop` (a fraction) is fp32.
    Int8 ranges are calibrated on training images. Where `upper_bound` is given nothing is measured here, and the
    limit is judged by that bound. `limit_ms` None means no limit, `trained` False skips parity and accuracies (they
    would say nothing).
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_network(network, description, folder / "model.network.json")
    onnx = export_onnx(network, description.resolution, folder / "model.onnx")
    images = data.at("train", description.resolution).images[: CALIBRATION_IMAGES if trained else UNTRAINED_IMAGES]
    calibration = data.preprocess.array(images)
    parity = None
    if trained:
        validation = data.at("val", description.resolution).images[:PARITY_IMAGES]
        parity = check_parity(network, onnx, data.preprocess.array(validation))
    tried = [_prepare(onnx, d, folder, calibration) for d in deployments]
    if trained:
        tried = [_with_accuracy(t, data, description) for t in tried]
    if upper_bound is None:
        tried = _with_measurements(tried, sessions)
    return Deployed(
        description=description,
        onnx=onnx,
        parity=parity,
        tried=tuple(_judge(tried, limit_ms, max_drop, upper_bound, judge_accuracy=trained)),
    )


def _prepare(onnx: Path, deployment: Deployment, folder: Path, calibration: NDArray[np.float32]) -> TriedDeployment:
    try:
        path = load_runtime(deployment.runtime).prepare(onnx, deployment.precision, folder, calibration)
    except (UserError, RuntimeError, ValueError) as error:  # quantisers refuse some graphs
        return _failed(deployment, f"could not be prepared: {error}")
    return TriedDeployment(deployment=deployment, path=path, accuracy=None, measurement=None)


def _with_accuracy(tried: TriedDeployment, data: ImageData, description: NetworkDescription) -> TriedDeployment:
    if tried.path is None:
        return tried
    try:
        accuracy = deployed_accuracy(tried, data, "val", description.resolution)
    except (UserError, RuntimeError) as error:
        return replace(tried, path=None, reason=f"could not be run here: {error}")
    return replace(tried, accuracy=accuracy)


def deployed_accuracy(tried: TriedDeployment, data: ImageData, split: str, resolution: int) -> float:
    """Accuracy (fraction) of the deployed file itself, run by its runtime, on `val` or `test`."""
    assert tried.path is not None
    session = load_runtime(tried.deployment.runtime).load(tried.path, tried.deployment)
    images = data.at("test" if split == "test" else "val", resolution)
    return accuracy_in_runtime(session.run, images, data.preprocess, batch=tried.deployment.batch)


def _with_measurements(tried: Sequence[TriedDeployment], sessions: int) -> list[TriedDeployment]:
    requests = [MeasureRequest(t.path, t.deployment) for t in tried if t.path is not None]
    results = {m.request: m for m in measure(requests, sessions=sessions)}
    return [
        t if t.path is None else replace(t, measurement=results[MeasureRequest(t.path, t.deployment)]) for t in tried
    ]


def _judge(
    tried: Sequence[TriedDeployment],
    limit_ms: float | None,
    max_drop: float,
    upper_bound: UpperBound | None,
    *,
    judge_accuracy: bool,
) -> list[TriedDeployment]:
    """Accept or reject each deployment with its reason, and choose the fastest accepted one."""
    exact = [t.accuracy for t in tried if t.deployment.precision == FP32 and t.accuracy is not None]
    accuracies = exact or [t.accuracy for t in tried if t.accuracy is not None]
    floor = max(accuracies, default=0.0) - max_drop if judge_accuracy else 0.0
    judged = []
    for t in tried:
        reason = t.reason or _objection(t, limit_ms, floor, upper_bound, judge_accuracy=judge_accuracy)
        judged.append(replace(t, accepted=not reason, reason=reason))
    speeds = [_speed(t, upper_bound) for t in judged]
    accepted = [i for i, t in enumerate(judged) if t.accepted]
    if not accepted:
        return judged
    best = min(accepted, key=lambda i: speeds[i])
    name = judged[best].deployment.name
    return [
        replace(t, chosen=True) if i == best else replace(t, reason=f"slower than {name}") if t.accepted else t
        for i, t in enumerate(judged)
    ]


def _objection(
    t: TriedDeployment, limit_ms: float | None, floor: float, upper_bound: UpperBound | None, *, judge_accuracy: bool
) -> str:
    """Why a deployment cannot be delivered; empty where it can."""
    if t.measurement is not None and t.measurement.failed is not None:
        return f"could not be measured: {t.measurement.failed}"
    if judge_accuracy and t.accuracy is not None and t.accuracy < floor:
        return f"accuracy {t.accuracy:.1%} is below {floor:.1%}, what --max-drop allows"
    if limit_ms is not None and upper_bound is not None and upper_bound(t.deployment) > limit_ms:
        return f"predicted to take up to {upper_bound(t.deployment):.3g} ms"
    if limit_ms is not None and t.measurement is not None and not t.measurement.keeps(limit_ms):
        return f"its slowest session took {t.measurement.worst_session_p50_ms:.3g} ms"
    return ""


def _speed(t: TriedDeployment, upper_bound: UpperBound | None) -> float:
    return upper_bound(t.deployment) if upper_bound is not None else t.p50_ms


def _failed(deployment: Deployment, reason: str) -> TriedDeployment:
    return TriedDeployment(deployment=deployment, path=None, accuracy=None, measurement=None, reason=reason)
