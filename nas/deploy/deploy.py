"""From a trained network to the deployment that is handed over: every candidate tried, measured and given a reason."""

import math
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from numpy.typing import NDArray

from nas.calls import CAMERA_MS, CONTINUOUS_MS
from nas.deploy.answers import Answers, AnswersKept
from nas.deploy.choosing import (
    Rejection,
    UpperBound,
    accuracy_floor,
    base_of_views,
    choose,
    doubt_of,
    no_rejection,
)
from nas.deploy.float_parts import float_part, larger_parts, usual_part
from nas.deploy.in_time import ATTEMPT, LEFT_OUT, MEASURING, InTime
from nas.deploy.onnx import check_parity, export_onnx
from nas.deploy.tried import INT8, Deployed, TriedDeployment, files_bytes
from nas.deployment import ALONE, CPU, PIPELINE, Deployment, common_batch
from nas.errors import UserError
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.pipeline import write_pipeline
from nas.measure.protocol import measure
from nas.networks.description import NETWORK, NetworkDescription, save_network
from nas.runtimes import load_runtime
from nas.tasks import TaskData, task_of
from nas.tasks.examples import some_for_input
from nas.tasks.task import Run

if TYPE_CHECKING:
    from torch import nn

CALIBRATION_IMAGES = 128
UNTRAINED_IMAGES = 8
"""Calibration images where only the speed is wanted, which does not depend on the ranges."""
PARITY_IMAGES = 64
WITHIN_REACH = 1.3
"""Deployments that take up to so many times the fastest one's time may be the fastest with other threads."""
MIRRORED_FILE = "model.mirrored.onnx"
"""The network that is asked about an image and its mirror image, before it is prepared for a deployment."""
IN_TRAINING_FILE = "model.in-training-int8.onnx"
"""The file of a network that was quantised in training, among those of its deployments."""


class Measurer(Protocol):
    """Measures networks, here or on another machine; `nas.measure.protocol.measure` is one.

    `least_calls`: calls of each network and session to time at least; without, as many as the limits ask for.
    """

    def __call__(
        self, requests: Sequence[MeasureRequest], *, sessions: int, least_calls: int = ...
    ) -> list[Measurement]: ...


def deploy(
    network: "nn.Module",
    description: NetworkDescription,
    data: TaskData,
    deployments: Sequence[Deployment],
    *,
    folder: Path,
    max_drop: float,
    rejection: Rejection = no_rejection,
    upper_bound: UpperBound | None = None,
    sessions: int = 3,
    trained: bool = True,
    measurer: Measurer | None = None,
    in_training: Path | None = None,
    slack: float | None = None,
    isa: Collection[str] | None = None,
    fewer_threads: Sequence[int] = (),
    left_s: Callable[[], float] = lambda: math.inf,
    expected_ms: Callable[[Deployment], float] = lambda deployment: 0.0,
) -> Deployed:
    """Export `network`, try `deployments` (all of one batch), and choose one that keeps limits and accuracy.

    Accuracy is measured in each runtime on the validation split; the reference for `max_drop` (a fraction) is fp32.
    Int8 ranges are calibrated on training images. `rejection` names a missed limit. Where `upper_bound` is given
    nothing is measured here, and the fastest is the one with the lowest bound. `trained` False skips parity and
    accuracies (they would say nothing). `measurer` measures elsewhere than here. `in_training` is the same network as
    an ONNX file that was quantised in training: it is tried too wherever int8 is. `slack`: see `choose`. `isa`: the
    instruction sets of the target's processor, which decide how many bits int8 weights may have; None: this host's.
    `fewer_threads`: numbers that the fastest deployments are measured with as well, where they have more.

    Where int8 loses more than `max_drop` it is tried again with the last layers in floating point; a task may ask for
    them from the start. Where `slack` asks
    for accuracy, the best deployment that leaves the time for it is tried again with mirrored views: they cost speed
    alone.

    `left_s` says how many seconds are left: what is not expected to end in them is left out, such a deployment with the
    reason `LEFT_OUT`. One that can be prepared is tried and measured in any case. `expected_ms`: the latency that is
    predicted; the first deployment is tried first (others are compared with its accuracy), then the fastest, so that
    slow ones are left out.
    """
    signature = description.signature
    folder.mkdir(parents=True, exist_ok=True)
    save_network(network, description, folder / NETWORK)
    onnx = export_onnx(network, signature.input, folder / "model.onnx", common_batch(deployments))
    write_pipeline(folder, data, signature)
    count = CALIBRATION_IMAGES if trained else UNTRAINED_IMAGES
    calibration = data.inputs(some_for_input(data, "train", signature.input, count))
    parity = None
    if trained:
        validation = data.for_input("val", signature.input).some(PARITY_IMAGES)
        agreement = partial(task_of(data).agreement, signature=signature)
        parity = check_parity(network, onnx, data.inputs(validation), agreement)

    time_left = InTime(left_s)
    tried: list[TriedDeployment] = []

    def attempt(deployment: Deployment, in_float: str = "") -> TriedDeployment:
        possible = sum(t.path is not None for t in tried)
        if possible and not time_left.fits_attempt(possible):
            return left_out(deployment, in_float)
        with time_left.timed(ATTEMPT):
            made = _prepare(onnx, deployment, folder, calibration, in_float, isa)
            return _with_accuracy(made, data, description) if trained else made

    task = task_of(data)
    for d in [*deployments[:1], *sorted(deployments[1:], key=expected_ms)]:
        tried.append(attempt(d, usual_part(task) if d.precision == INT8 else ""))
    tried.sort(key=lambda t: deployments.index(t.deployment))
    if trained:
        tried = with_float_parts(tried, max_drop, attempt)
    if in_training is not None:
        file = shutil.copyfile(in_training, folder / IN_TRAINING_FILE)
        aware = [_known(d, file) for d in deployments if d.precision == INT8]
        tried += [_with_accuracy(t, data, description) for t in aware]

    def measured(some: Sequence[TriedDeployment]) -> list[TriedDeployment]:
        with time_left.timed(MEASURING):
            return _with_measurements(some, sessions, measurer or measure)

    if upper_bound is None:
        tried = measured(tried)
        fewer = _with_fewer_threads(tried, fewer_threads)
        if fewer and time_left.fits(MEASURING):
            tried += measured(fewer)
    chosen = partial(
        choose, max_drop=max_drop, rejection=rejection, upper_bound=upper_bound,
        parity=parity, check_accuracy=trained, metric=task_of(data).metric_of(data), slack=slack,
    )  # fmt: skip
    found = chosen(tried)
    if trained and slack is not None and upper_bound is None and time_left.fits(ATTEMPT, MEASURING):
        base = base_of_views(found, rejection, slack)
        further = base and _with_mirrored_views(base, network, data, description, folder, calibration, isa)
        if further is not None:
            found = chosen([*tried, *measured([further])])
    if trained and upper_bound is None and time_left.fits(MEASURING):
        found = [_shown_beside(t, measurer or measure) if t.chosen else t for t in found]
    doubt = doubt_of(found, rejection)
    return Deployed(description=description, onnx=onnx, parity=parity, tried=tuple(found), doubt=doubt)


def measured_again(
    deployed: Deployed,
    measurer: Measurer | None = None,
    *,
    sessions: int = 3,
    those: Callable[[TriedDeployment], bool] = lambda tried: True,
) -> Deployed:
    """The same files with new measurements of `those`; nothing of them is chosen yet. `measurer` measures elsewhere
    than here."""
    again = iter(_with_measurements([t for t in deployed.tried if those(t)], sessions, measurer or measure))
    return replace(deployed, tried=tuple(next(again) if those(t) else t for t in deployed.tried))


def left_out(deployment: Deployment, in_float: str = "") -> TriedDeployment:
    """A deployment that there was no time for."""
    return TriedDeployment(
        deployment=deployment, path=None, accuracy=None, measurement=None, in_float=in_float, reason=LEFT_OUT
    )


def with_float_parts(
    tried: Sequence[TriedDeployment], max_drop: float, attempt: Callable[[Deployment, str], TriedDeployment]
) -> list[TriedDeployment]:
    """`tried`, and after each int8 deployment that loses too much the same with more and more in floating point than
    it has.

    `attempt` tries a deployment with a part of `FLOAT_PARTS` left in floating point.
    """
    floor = accuracy_floor(tried, max_drop)
    found = []
    for t in tried:
        found.append(t)
        parts = iter(larger_parts(t.in_float) if t.deployment.precision == INT8 else ())
        while found[-1].accuracy is not None and found[-1].accuracy < floor and (part := next(parts, "")):
            found.append(attempt(t.deployment, part))
    return found


def _with_fewer_threads(tried: Sequence[TriedDeployment], counts: Sequence[int]) -> list[TriedDeployment]:
    """The fastest of the measured deployments again, with each of the counts that is below its own.

    More threads can lose to fewer: they have to be woken up and wait for each other.
    """
    known = [t for t in tried if t.measurement is not None and t.measurement.failed is None]
    fastest_ms = min((t.p50_ms for t in known), default=math.inf)
    return [
        replace(t, deployment=replace(t.deployment, threads=count), measurement=None, fewer_threads=True)
        for t in known
        if t.p50_ms <= WITHIN_REACH * fastest_ms and t.deployment.device == CPU
        for count in counts
        if count < t.deployment.threads
    ]


def _with_mirrored_views(
    t: TriedDeployment,
    network: "nn.Module",
    data: TaskData,
    description: NetworkDescription,
    folder: Path,
    calibration: NDArray[Any],
    isa: Collection[str] | None,
) -> TriedDeployment | None:
    """`t` of the network that is asked about an input and its mirror image; None where there is no such network.

    Nor is there one for PyTorch, which runs the network and not a file made from it, nor of int8 that was trained.
    """
    mirrored = task_of(data).mirrored(network, data)
    if mirrored is None or t.in_training or t.deployment.runtime == "torch":
        return None
    input = description.signature.input
    onnx = export_onnx(mirrored, input, folder / MIRRORED_FILE, t.deployment.batch)
    agreement = partial(task_of(data).agreement, signature=description.signature)
    inputs = data.inputs(data.for_input("val", input).some(PARITY_IMAGES))
    defect = check_parity(mirrored, onnx, inputs, agreement).defect
    made = _prepare(onnx, t.deployment, folder, calibration, t.in_float, isa)
    made = replace(made, mirrored=True, fewer_threads=t.fewer_threads)
    return replace(made, path=None, reason=defect) if defect else _with_accuracy(made, data, description)


def _prepare(
    onnx: Path,
    deployment: Deployment,
    folder: Path,
    calibration: NDArray[Any],
    in_float: str,
    isa: Collection[str] | None,
) -> TriedDeployment:
    part = float_part(in_float, onnx) if in_float else None
    try:
        path = load_runtime(deployment.runtime).prepare(
            onnx, deployment.precision, folder, calibration, float_part=part, isa=isa
        )
    except (UserError, RuntimeError, ValueError) as error:  # quantisers refuse some graphs
        return TriedDeployment(
            deployment=deployment, path=None, accuracy=None, measurement=None, in_float=in_float,
            reason=f"could not be prepared: {error}",
        )  # fmt: skip
    return TriedDeployment(
        deployment=deployment, path=path, accuracy=None, measurement=None, size_bytes=files_bytes(path),
        in_float=in_float,
    )  # fmt: skip


def _known(deployment: Deployment, file: Path) -> TriedDeployment:
    """A deployment whose file was quantised in training."""
    return TriedDeployment(
        deployment=deployment, path=file, accuracy=None, measurement=None, size_bytes=files_bytes(file),
        in_training=True,
    )  # fmt: skip


def _with_accuracy(tried: TriedDeployment, data: TaskData, description: NetworkDescription) -> TriedDeployment:
    if tried.path is None:
        return tried
    try:
        accuracy, answers = validated(tried, data, description)
    except (UserError, RuntimeError) as error:
        return replace(tried, path=None, reason=f"could not be run here: {error}")
    return replace(tried, accuracy=accuracy, answers=answers)


def validated(tried: TriedDeployment, data: TaskData, description: NetworkDescription) -> tuple[float, Answers | None]:
    """Accuracy (fraction, by the task's metric) of the deployed file itself on the validation split, and the answers
    that it is the share of right ones of; None where it is no such share."""
    task, signature = task_of(data), description.signature
    split = data.for_input("val", signature.input)
    run = AnswersKept(_loaded(tried), task, split, signature)
    accuracy = task.accuracy_in_runtime(run, split, data.preprocess, signature, batch=tried.deployment.batch)
    return accuracy, run.answers(accuracy)


def _loaded(tried: TriedDeployment) -> Run:
    """The deployed file itself, run by its runtime."""
    assert tried.path is not None
    return load_runtime(tried.deployment.runtime).load(tried.path, tried.deployment).run


def deployed_accuracy(
    tried: TriedDeployment, data: TaskData, split: Literal["val", "test"], description: NetworkDescription
) -> float:
    """Accuracy (fraction, by the task's metric) of the deployed file itself, run by its runtime."""
    return task_of(data).accuracy_in_runtime(
        _loaded(tried),
        data.for_input(split, description.signature.input),
        data.preprocess,
        description.signature,
        batch=tried.deployment.batch,
    )


def deployed_figures(tried: TriedDeployment, data: TaskData, description: NetworkDescription) -> dict[str, float]:
    """All figures of the deployed file on `test`, run by its runtime: fractions by name, the task's metric first."""
    return task_of(data).figures_in_runtime(
        _loaded(tried),
        data.for_input("test", description.signature.input),
        data.preprocess,
        description.signature,
        classes=data.classes,
        batch=tried.deployment.batch,
    )


def _with_measurements(tried: Sequence[TriedDeployment], sessions: int, measurer: Measurer) -> list[TriedDeployment]:
    requests = [MeasureRequest(t.path, t.deployment) for t in tried if t.path is not None]
    results = {m.request: m for m in measurer(requests, sessions=sessions)}
    return [
        t if t.path is None else replace(t, measurement=results[MeasureRequest(t.path, t.deployment)]) for t in tried
    ]


def other_calls_ms(interval_ms: float) -> float:
    """The pattern that is shown beside the one that was asked for: without a pause, or as a camera calls."""
    return CAMERA_MS if interval_ms == CONTINUOUS_MS else CONTINUOUS_MS


def _shown_beside(t: TriedDeployment, measurer: Measurer) -> TriedDeployment:
    """`t` in the other pattern of calls, and with times of the other extent: for people, not for a limit."""
    if t.path is None:
        return t
    calls = t.deployment.called(other_calls_ms(t.deployment.interval_ms))
    extent = t.deployment.covering(PIPELINE if t.deployment.covers == ALONE else ALONE)
    # The tail of a hundred calls with pauses between them would take many seconds.
    requests = [MeasureRequest(t.path, calls), MeasureRequest(t.path, extent)]
    beside, across = measurer(requests, sessions=1, least_calls=0)
    return replace(t, beside=beside, across=across)
