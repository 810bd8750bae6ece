"""The result of a bench as one document: plain values, units in their names. Pure functions of what was measured."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nas.bench.cells import Cell
from nas.bench.models import BenchModel, is_rebatched
from nas.calls import CONTINUOUS
from nas.deployment import name_in
from nas.measure.measurement import DISTURBED, Measurement
from nas.runtimes.nodes import NodeTime

SCHEMA = 1
RANDOM_INPUTS, TRAINING_EXAMPLES = "random inputs", "training examples"

Document = Mapping[str, Any]


def cell_document(
    cell: Cell, model: BenchModel, measured: Measurement | str, spaced: Mapping[str, float | None] | None = None
) -> dict[str, Any]:
    """One measurement, or why there is none (`not_measured`); every figure is then null.

    `spaced`: median latency by pattern of calls, of those with pauses; None where it cannot be called so.

    With several streams only the throughput is known, not how long a single call takes.
    """
    deployment = cell.deployment
    reason = measured if isinstance(measured, str) else measured.failed
    one = isinstance(measured, Measurement) and reason is None and cell.streams == 1
    values = measured if isinstance(measured, Measurement) and reason is None else None
    return {
        "model": model.name,
        "runtime": deployment.runtime,
        "precision": deployment.precision,
        "threads": deployment.threads,
        "batch": deployment.batch,
        "runs_on": deployment.device,
        "streams": cell.streams,
        "p50_ms": values.p50_ms if values and one else None,
        "p90_ms": values.p90_ms if values and one else None,
        "p99_ms": values.p99_ms if values and one else None,
        "device_ms": values.device_ms if values and one else None,
        "calls_per_session": min(s.calls for s in values.sessions) if values and one else None,
        "p50_by_calls_ms": {CONTINUOUS: values.p50_ms, **(spaced or {})} if values and one else {},
        "session_p50_ms": [s.p50_ms for s in values.sessions] if values and one else [],
        "between_session_spread_pct": values.between_session_spread_pct if values else None,
        "images_per_s": 1e3 * deployment.batch / values.p50_ms if values else None,
        "memory_bytes": values.memory_bytes if values else None,
        "energy_mj": values.energy_mj if values and math.isfinite(values.energy_mj) else None,
        "verdict": values.verdict if values else None,
        "disturbance": values.disturbance if values else None,
        "int8_calibrated_on": _calibration(model, values) if values else None,
        "not_measured": reason,
    }


def operators_document(cell: Cell, model: BenchModel, nodes: Sequence[NodeTime], most: int) -> dict[str, Any]:
    """The slowest operators of one network in one deployment, from a run under the runtime's profiler."""
    total_ms = sum(node.ms for node in nodes)
    slowest = sorted(nodes, key=lambda node: node.ms, reverse=True)[:most]
    return {
        "model": model.name,
        "runtime": cell.deployment.runtime,
        "precision": cell.deployment.precision,
        "batch": cell.deployment.batch,
        "runs_on": cell.deployment.device,
        "from": "a separate run under the runtime's profiler, which slows it down",
        "operators_in_all": len(nodes),
        "total_ms": total_ms,
        "slowest": [
            {"name": node.name, "ms": node.ms, "share": node.ms / total_ms if total_ms > 0 else None}
            for node in slowest
        ],
    }


def model_document(model: BenchModel) -> dict[str, Any]:
    """Name, input and weights of the measured network; the weights tell whether it was ever trained."""
    return {
        "model": model.name,
        "input": model.input.to_json(),
        "weights": model.weights,
    }


def deployment_name(entry: Document) -> str:
    """`openvino-int8`; with an asterisk where int8 ranges are of random inputs."""
    mark = "*" if entry.get("int8_calibrated_on") == RANDOM_INPUTS else ""
    return f"{name_in(entry)}{mark}"


def was_measured(entry: Document) -> bool:
    return entry["not_measured"] is None


def is_disturbed(entry: Document) -> bool:
    return bool(entry["verdict"] == DISTURBED)


def fastest(cells: Sequence[Document], model: str) -> Document | None:
    """A network's cell with the lowest latency at the smallest batch; None where nothing was measured."""
    smallest = min(cell["batch"] for cell in cells)
    found = [c for c in cells if c["model"] == model and c["batch"] == smallest and c["p50_ms"] is not None]
    return min(found, key=lambda c: float(c["p50_ms"])) if found else None


def fastest_called(cells: Sequence[Document], model: str, calls: str) -> Document | None:
    """A network's cell with the lowest latency in a pattern of calls; None where none was measured in it."""
    found = [c for c in cells if c["model"] == model and c["p50_by_calls_ms"].get(calls) is not None]
    return min(found, key=lambda c: float(c["p50_by_calls_ms"][calls])) if found else None


def _calibration(model: BenchModel, measured: Measurement) -> str | None:
    request = measured.request
    if request.deployment.precision != "int8" or model.integers is not None:
        return None
    given = model.delivered.get((request.deployment.runtime, "int8"))
    # Where the delivered file cannot be changed to a batch, that batch has a file of its own.
    return TRAINING_EXAMPLES if given is not None and is_rebatched(request.path, given) else RANDOM_INPUTS
