"""A bundle: one folder with a deployed network, all it takes to run it, and the receipt of what was measured.

model files        what the runtime loads; `model.onnx` (fp32); `model.network.json` with `model.safetensors`
labels.json        names of the classes, in the order of the outputs
preprocess.json    from an example (an image) to the input
sample.json        a validation example (for images beside it `sample.png`), and the network's output for it
pipeline.json      the task whose pre- and post-processing this is
run.py             uses the network with numpy, Pillow and the runtime alone
receipt.json       written last: see docs/export.md

What else there is, and what these files say in detail, is the task's: `nas.tasks.artifacts`.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas import __version__
from nas.bundles.receipt import SCHEMA, licences, versions
from nas.bundles.run_script import run_script
from nas.data_options import DataSource
from nas.deploy.tried import Deployed, TriedDeployment, files_of
from nas.files.writing import sha256_of, staged_folder, write_json
from nas.limits import session_latencies_ms
from nas.measure.host import HostFingerprint, fingerprint
from nas.measure.measurement import Measurement
from nas.measure.pipeline import SAMPLE, write_pipeline
from nas.networks.description import NETWORK
from nas.networks.find import RECEIPT
from nas.runtimes import load_runtime
from nas.targets.registry import material_differences
from nas.tasks import TaskData, task_of
from nas.tasks.artifacts import Figures

RUN_SCRIPT = "run.py"
TOLERANCES: Mapping[str, float] = {"fp32": 1e-3, "bf16": 0.05, "fp16": 0.01, "int8": 0.05}
"""Largest difference between outputs of one network on two machines, over the largest output: kernels differ in the
order of sums, and one changed rounding shows where numbers have 8 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Facts that the files alone do not tell: where the network comes from, and how it was evaluated."""

    command: str
    source: str
    """Source of the export: `RUN#1`, or a file."""
    target: str
    data: DataSource
    max_drop: float
    """Accuracy (fraction, by the task's metric) that a faster deployment was allowed to lose."""
    limits: Mapping[str, float]
    limits_text: str
    within_limit: bool
    margin_pct: float | None
    torch_accuracy: float | None
    """Fraction of the validation split, in torch."""
    test_accuracy: float | None
    """Accuracy of the deployed file on the test split."""
    measured_on: HostFingerprint | None = None
    """The machine that latencies were measured on; None: this one."""
    accuracy_there: float | None = None
    """Fraction of the validation split by the deployed file on that machine; None where it was not computed there."""
    predicted_ms: float | None = None
    """Upper bound of the predicted latency where nothing was measured."""
    in_training: Mapping[str, Any] | None = None
    """Record of the quantisation in training, where its file was chosen (docs/export.md)."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the receipt."""


def deliver_files(deployed: Deployed, folder: Path) -> Deployed:
    """Copy the network and its chosen deployment to `folder` (replacing what is there), with the new paths.

    Files of deployments that were not chosen are not delivered. The folder appears whole or not at all.
    """
    chosen = deployed.chosen
    assert chosen is not None
    assert chosen.path is not None
    network = deployed.onnx.with_name(NETWORK)
    with staged_folder(folder) as staged:
        for file in {deployed.onnx, *files_of(network), *files_of(chosen.path)}:
            shutil.copyfile(file, staged / file.name)
    tried = tuple(replace(t, path=folder / chosen.path.name if t.chosen else None) for t in deployed.tried)
    return replace(deployed, onnx=folder / deployed.onnx.name, tried=tried)


def complete_bundle(folder: Path, deployed: Deployed, data: TaskData, claims: Claims) -> dict[str, Any]:
    """Make a bundle of the model files in `folder` (see `deliver_files`); returns its receipt, which is written last.

    The chosen deployment is run on a validation image, and on all of them where the task has more figures to tell.
    """
    chosen = deployed.chosen
    assert chosen is not None
    assert chosen.path is not None
    artifacts, signature = task_of(data).artifacts, deployed.description.signature
    session = load_runtime(chosen.deployment.runtime).load(chosen.path, chosen.deployment)
    inputs, known = write_pipeline(folder, data, signature)
    output = session.run(inputs)[0]
    stored = artifacts.write_output(folder, output)
    write_json(folder / SAMPLE, {**known, **stored, "tolerance": tolerance_of(output, chosen.deployment.computes_in)})
    script = run_script(artifacts.script(signature), chosen.deployment, chosen.path.name)
    if script is not None:
        (folder / RUN_SCRIPT).write_text(script, encoding="utf-8")
    figures = artifacts.figures(session.run, data, signature, chosen.deployment.batch)
    write_json(folder / RECEIPT, _receipt(folder, deployed, chosen, data, claims, figures))
    receipt: dict[str, Any] = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
    return receipt


def tolerance_of(output: NDArray[np.float32], precision: str) -> float:
    """Largest difference of an output from `output` that is allowed on another machine."""
    return TOLERANCES[precision] * float(np.abs(output).max())


def validation_sha256(data: TaskData) -> str:
    """Tells whether another copy of the data has the same validation split."""
    digest = hashlib.sha256()
    for array in task_of(data).arrays(data.val).values():
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def _receipt(
    folder: Path, deployed: Deployed, chosen: TriedDeployment, data: TaskData, claims: Claims, figures: Figures
) -> dict[str, Any]:
    assert chosen.path is not None
    measured = chosen.measurement
    host = (claims.measured_on or fingerprint()) if measured is not None else None
    fp32 = (t for t in deployed.tried if t.deployment.precision == "fp32" and t.deployment.runtime != "torch")
    exact = [t.accuracy for t in fp32 if t.accuracy is not None]
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": claims.command,
        "source": claims.source,
        "task": data.task,
        "metric": task_of(data).metric_of(data),
        "target": claims.target,
        "device": host.cpu_model if host is not None else None,
        "fingerprint": host.to_json() if host is not None else None,
        "runtime": chosen.deployment.runtime,
        "precision": chosen.deployment.precision,
        "in_float": chosen.in_float or None,
        "mirrored_views": chosen.mirrored,
        "quantised_in_training": claims.in_training,
        "threads": chosen.deployment.threads,
        "batch": chosen.deployment.batch,
        "runs_on": chosen.deployment.device,
        "calls": chosen.deployment.calls,
        "limit_on": chosen.deployment.covers,
        "input": task_of(data).input_label(deployed.description.signature.input),
        "signature": deployed.description.signature.to_json(),
        "model": chosen.path.name,
        "onnx": deployed.onnx.name,
        "limits": dict(claims.limits),
        "limits_text": claims.limits_text,
        "within_limit": claims.within_limit,
        "margin_pct": claims.margin_pct,
        "judged_ms": claims.predicted_ms if measured is None else _judged_ms(measured, claims.limits),
        "latency_ms": _latency(measured),
        "latency_by_calls_ms": chosen.p50_by_calls_ms,
        "pipeline": chosen.pipeline_ms,
        "predicted_ms": claims.predicted_ms,
        "memory_bytes": measured.memory_bytes if measured is not None else None,
        "size_bytes": chosen.size_bytes,
        "accuracy": {
            "torch": claims.torch_accuracy,
            "onnx_fp32": exact[0] if exact else None,
            "deployed": chosen.accuracy,
            "on_device": claims.accuracy_there,
            "test": claims.test_accuracy,
            **figures.accuracy,
        },
        "accuracy_on_device": host is not None and not material_differences(fingerprint(), host),
        "max_drop": claims.max_drop,
        "parity": deployed.parity.to_json() if deployed.parity is not None else None,
        "deployments": [t.to_json() for t in deployed.tried],
        "data": {
            **claims.data.to_json(),
            "name": data.name,
            "classes": len(data.classes),
            "examples": task_of(data).examples,
            "train": len(data.train),
            "val": len(data.val),
            "test": len(data.test),
            "validation_sha256": validation_sha256(data),
        },
        "versions": versions(),
        "licences": licences(),
        **figures.more,
        **claims.more,
        "sha256": {p.name: sha256_of(p) for p in sorted(folder.iterdir()) if p.is_file() and p.name != RECEIPT},
    }


def _judged_ms(measured: Measurement, limits: Mapping[str, float]) -> float | None:
    """The slowest session at the percentile that is limited; None where nothing could be measured."""
    return max(session_latencies_ms(measured, int(limits.get("percentile", 50))), default=None)


def _latency(measured: Measurement | None) -> dict[str, Any] | None:
    if measured is None or measured.failed is not None:
        return None
    return {
        "p50": measured.p50_ms,
        "p90": measured.p90_ms,
        "p99": measured.p99_ms,
        "sessions": [
            {
                "p50": s.p50_ms,
                "p90": s.p90_ms,
                "p90_lower": s.p90_lower_ms,
                "p90_upper": s.p90_upper_ms,
                "p99": s.p99_ms,
                "p99_lower": s.p99_lower_ms,
                "p99_upper": s.p99_upper_ms,
                "calls": s.calls,
            }
            for s in measured.sessions
        ],
        "between_session_spread_pct": measured.between_session_spread_pct,
        "reference_p50": measured.reference_p50_ms if np.isfinite(measured.reference_p50_ms) else None,
        "verdict": measured.verdict,
    }
