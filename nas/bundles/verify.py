"""`nas export --verify`: every claim of a bundle's receipt, checked again on this host."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nas.bundles.bundle import validation_sha256
from nas.bundles.predictor import Predictor
from nas.bundles.receipt import Receipt, changed_files, read_receipt
from nas.deploy.deploy import PARITY_IMAGES
from nas.deploy.onnx import check_parity
from nas.deploy.tried import files_bytes
from nas.deployment import Deployment
from nas.errors import UserError
from nas.limits import AccuracyLimit, LatencyLimit, Limits, Observation
from nas.limits.params import ParamsLimit
from nas.measure.host import fingerprint
from nas.measure.measurement import DISTURBED, MeasureRequest
from nas.measure.pipeline import SAMPLE
from nas.measure.protocol import measure
from nas.networks.description import NETWORK, load_network, weights_path
from nas.networks.find import RECEIPT, find_bundle
from nas.progress import Progress, SilentProgress
from nas.runtimes import load_runtime
from nas.runtimes.base import Inputs, Outputs
from nas.targets.registry import material_differences
from nas.tasks import TaskData, task_named
from nas.text import milliseconds, percent

SAME_ACCURACY = 0.005
"""Accuracies that differ by up to this (or one image) are the same: another processor sums in another order."""

_TIMES = ("latency_ms", "throughput")
"""Limits that a busy machine may miss."""

Status = Literal["passed", "failed", "not repeated"]


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, checked."""

    name: str
    status: Status
    detail: str
    """Finding of the check, or the reason why the claim was not repeated."""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def verify_bundle(bundle: str | Path, *, data: str | None = None, progress: Progress | None = None) -> list[Check]:
    """Check checksums, parity, sample output, accuracy and limits of a bundle.

    Nothing else is tried where a checksum fails: the files are not those that the receipt is about.

    Args:
        bundle: its folder, or `RUN#k` for what was delivered of that network.
        data: where the data is now; None: where it was.

    Raises:
        UserError: it is no bundle that this version can read.
    """
    progress = progress or SilentProgress()
    folder = find_bundle(str(bundle))
    receipt = read_receipt(folder)
    first = check_sums(folder, receipt)
    if first.status == "failed":
        reason = "the files are not those of the receipt"
        return [first, *(Check(name, "not repeated", reason) for name in CHECKS)]
    opened = _Bundle(folder, receipt, data)
    found = [first]
    for name, check in CHECKS.items():
        progress.note(f"checking {name}")
        try:
            found.append(Check(name, *check(opened)))
        except UserError as error:
            found.append(Check(name, "failed", str(error)))
        except (KeyError, TypeError, ValueError, OSError) as error:  # documents that were not written by this program
            found.append(Check(name, "failed", f"the bundle is not whole: {type(error).__name__}: {error}"))
    return found


def check_sums(folder: Path, receipt: Receipt) -> Check:
    """Every file of the receipt is there and unchanged."""
    problems = changed_files(folder, receipt)
    if problems:
        return Check("checksums", "failed", "; ".join(problems))
    return Check("checksums", "passed", f"{len(receipt.sha256)} files are unchanged")


class _Bundle:
    """A bundle whose files are those of its receipt, and what several checks need of it."""

    def __init__(self, folder: Path, receipt: Receipt, data: str | None) -> None:
        self.folder, self.receipt = folder, receipt
        self._data_source = data or receipt.data_source

    @property
    def model(self) -> Path:
        return self.folder / self.receipt.model

    def document(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UserError(f"{name} cannot be read: {error}", "export the network again") from error

    @cached_property
    def preprocess(self) -> Any:
        found = task_named(self.receipt.task).artifacts.read_preprocess(self.folder)
        if found is None:
            raise UserError("nothing says how the network's input is made", "export the network again")
        return found

    @cached_property
    def data(self) -> TaskData | str:
        """The data of the receipt, or why it is not at hand."""
        try:
            found = task_named(self.receipt.task).load(
                self._data_source, seed=self.receipt.data_seed, options=self.receipt.data_options
            )
        except UserError as error:
            return f"{error}; name it with --data"
        if validation_sha256(found) != self.receipt.validation_sha256:
            examples = task_named(self.receipt.task).examples
            return f"the validation {examples} of '{self._data_source}' are others than those of the receipt"
        with_ours: TaskData = found.with_preprocess(self.preprocess)
        return with_ours

    @cached_property
    def sample(self) -> NDArray[Any]:
        """The one example that travels with the bundle, as the network takes it: (1, ...)."""
        artifacts = task_named(self.receipt.task).artifacts
        return artifacts.read_sample(self.folder, self.document(SAMPLE))

    @cached_property
    def predictor(self) -> Predictor | str:
        """The bundle, ready for use; or why this host cannot run it."""
        deployment = self.receipt.deployment
        runtime = load_runtime(deployment.runtime)
        if runtime.missing() is not None:
            return f"{deployment.runtime} is not installed"
        unsupported = runtime.unsupported(deployment.precision, deployment.device)
        if unsupported is not None:
            return f"{deployment.name} cannot be run here: {unsupported}"
        return Predictor.open(self.folder, check=False)  # checked before

    def accuracy_of(self, run: Callable[[Inputs], Outputs], data: TaskData, name: Literal["val", "test"]) -> float:
        """A fraction, by the task's metric."""
        receipt = self.receipt
        return task_named(receipt.task).accuracy_in_runtime(
            run, data.for_input(name, receipt.signature.input), self.preprocess, receipt.signature,
            batch=receipt.deployment.batch,
        )  # fmt: skip

    @cached_property
    def accuracy(self) -> float | None:
        """Accuracy of the deployed file on the validation split, measured now; None without data or runtime."""
        if isinstance(self.data, str) or isinstance(self.predictor, str):
            return None
        return self.accuracy_of(self.predictor.run, self.data, "val")

    @cached_property
    def params(self) -> int | None:
        """Number of parameters of the network as it is deployed, counted now; None without its torch weights."""
        network = self.folder / NETWORK
        if not (network.is_file() and weights_path(network).is_file()):
            return None
        return sum(p.numel() for p in load_network(network).parameters())


Outcome = tuple[Status, str]


def _parity(bundle: _Bundle) -> Outcome:
    network, onnx = bundle.folder / NETWORK, bundle.folder / bundle.receipt.onnx
    if not (network.is_file() and weights_path(network).is_file()):
        return "not repeated", "the bundle has no torch weights"
    data = bundle.data
    signature = bundle.receipt.signature
    inputs, where = bundle.sample, "sample"
    if not isinstance(data, str):
        inputs, where = (
            data.inputs(data.for_input("val", signature.input).some(PARITY_IMAGES)),
            f"validation {task_named(bundle.receipt.task).examples}",
        )
    agreement = partial(task_named(bundle.receipt.task).agreement, signature=signature)
    parity = check_parity(load_network(network, fold=False), onnx, inputs, agreement)
    detail = (
        f"on {parity.images} {where} the answers of torch and ONNX agree in {percent(parity.agreement)}, "
        f"mean difference {parity.mean_abs_difference:.1e}, largest {parity.max_abs_difference:.1e}"
    )
    return "passed" if parity.holds else "failed", detail


def _sample_output(bundle: _Bundle) -> Outcome:
    if isinstance(bundle.predictor, str):
        return "not repeated", bundle.predictor
    sample = bundle.document(SAMPLE)
    expected = task_named(bundle.receipt.task).artifacts.read_output(bundle.folder, sample)
    output = bundle.predictor.run(bundle.sample)[0]
    difference, allowed = float(np.abs(output - expected).max()), float(sample["tolerance"])
    detail = f"largest difference {difference:.1e} of {allowed:.1e} allowed"
    return "passed" if difference <= allowed else "failed", detail


def _accuracy(bundle: _Bundle) -> Outcome:
    data, predictor, receipt = bundle.data, bundle.predictor, bundle.receipt
    if isinstance(data, str) or isinstance(predictor, str):
        return "not repeated", data if isinstance(data, str) else str(predictor)
    metric, details, same = receipt.metric, [], True
    examples = task_named(receipt.task).examples

    def compare(claimed: float, again: float, images: int, what: str) -> None:
        nonlocal same
        same = same and abs(again - claimed) <= max(SAME_ACCURACY, 1 / images) + 1e-9
        details.append(f"{metric} {percent(again)} on {images} {what}, the receipt says {percent(claimed)}")

    if receipt.accuracy is not None and bundle.accuracy is not None:
        compare(receipt.accuracy, bundle.accuracy, len(data.val), f"validation {examples}")
    if receipt.test_accuracy is not None:
        again = bundle.accuracy_of(predictor.run, data, "test")
        compare(receipt.test_accuracy, again, len(data.test), f"test {examples}")
    if receipt.onnx_accuracy is not None and receipt.onnx != receipt.model:
        exact = Deployment("onnxruntime", "fp32", receipt.deployment.threads, receipt.deployment.batch)
        run = load_runtime(exact.runtime).load(bundle.folder / receipt.onnx, exact).run
        again = bundle.accuracy_of(run, data, "val")
        compare(receipt.onnx_accuracy, again, len(data.val), f"validation {examples} in fp32")
    if not details:
        return "not repeated", "the receipt has none"
    return "passed" if same else "failed", "; ".join(details)


def _limits(bundle: _Bundle) -> Outcome:
    receipt = bundle.receipt
    if not receipt.limits:
        return "not repeated", "there was no limit"
    if receipt.fingerprint is None:
        return "not repeated", "it was not measured, but predicted for another device"
    differences = material_differences(fingerprint(), receipt.fingerprint)
    if differences:
        return "not repeated", f"this is another device: {'; '.join(differences)}"
    limits = limits_of(receipt.limits)
    (measured,) = measure([MeasureRequest(bundle.model, receipt.deployment)], least_calls=limits.least_calls)
    if measured.failed is not None:
        return "failed", f"it could not be measured: {measured.failed}"
    accuracy = bundle.accuracy if AccuracyLimit.name in limits else None
    params = bundle.params if ParamsLimit.name in limits else None
    known = Observation(
        batch=receipt.deployment.batch, size_bytes=files_bytes(bundle.model), accuracy=accuracy, params=params
    )
    missed = limits.violations(limits.observe(known, measured))
    times = f"p50 {milliseconds(measured.p50_ms)} ms, slowest session {milliseconds(measured.worst_session_p50_ms)} ms"
    seen = f"{times}; asked for: {limits.text}"
    untold = [
        *(["its parameters cannot be counted"] if ParamsLimit.name in limits and params is None else []),
        *(["its accuracy cannot be measured"] if AccuracyLimit.name in limits and accuracy is None else []),
    ]
    if not missed:
        return ("not repeated", f"{' and '.join(untold)} here ({seen})") if untold else ("passed", seen)
    if measured.verdict == DISTURBED and all(b.name in _TIMES for b in missed):
        return "not repeated", f"the machine is too busy to tell ({seen})"
    reasons = "; ".join(b.reason for b in missed) + f"; asked for: {limits.text}"
    if limits.undecided(measured) and {b.name for b in missed} == {LatencyLimit.name}:
        return "not repeated", reasons
    return "failed", reasons


def limits_of(given: Mapping[str, float]) -> Limits:
    """Limits as `Limits.to_json` writes them. Raises `UserError` for unknown ones."""
    try:
        return Limits.of(**given)  # type: ignore[arg-type]  # the percentile is an integer
    except TypeError as error:
        raise UserError(f"{RECEIPT} has limits that are not known: {error}", "update this program") from error


CHECKS: Mapping[str, Callable[[_Bundle], Outcome]] = {
    "parity": _parity,
    "sample output": _sample_output,
    "accuracy": _accuracy,
    "limits": _limits,
}
"""Checks repeated after the checksums, in this order."""
