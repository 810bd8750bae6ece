"""Messages between `protocol` and its worker process, as JSON: one job in, one result line per network out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nas.deployment import Deployment, Placement
from nas.runtimes.nodes import NodeTime

TAIL_FACTOR = 5.0
"""How much longer a network is timed where its slow calls are asked for. Of 300 calls the 99th percentile is bounded by
the second slowest, which is as likely a hiccup of the machine; of 2,000 by one of the twenty slowest."""


def window_seconds(seconds_per_model: float, least_calls: int) -> float:
    """Time for the calls of a network that is called without pauses, `least_calls` being asked for (0: any number)."""
    return seconds_per_model * (TAIL_FACTOR if least_calls else 1.0)


@dataclass(frozen=True, slots=True)
class JobModel:
    """One network of a job."""

    index: int
    """The caller's number for it; comes back in the result."""
    path: Path
    deployment: Deployment
    streams: int = 1
    """Calls at once, see `nas.measure.measurement.MeasureRequest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that a worker does in its life."""

    models: tuple[JobModel, ...]
    placement: Placement
    """Device and threads of all its models."""
    reference: Path | None
    seconds_per_model: float
    least_calls: int = 0
    """Calls of each network to time at least, whatever time they take."""
    node_seconds: float = 0.0
    """Time for each network's operators one by one, after the timing of the whole; 0: not at all."""
    seed: int = 0
    heartbeat: Path | None = None
    """File in which the worker notes its step (`nas.measure.heartbeat`); the supervisor chooses it."""

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        document["reference"] = None if self.reference is None else str(self.reference)
        document["heartbeat"] = None if self.heartbeat is None else str(self.heartbeat)
        document["models"] = [
            {"index": m.index, "path": str(m.path), "deployment": asdict(m.deployment), "streams": m.streams}
            for m in self.models
        ]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Job:
        return cls(
            models=tuple(
                JobModel(m["index"], Path(m["path"]), Deployment(**m["deployment"]), m.get("streams", 1))
                for m in document["models"]
            ),
            placement=Placement(**document["placement"]),
            reference=None if document["reference"] is None else Path(document["reference"]),
            seconds_per_model=document["seconds_per_model"],
            least_calls=document["least_calls"],
            node_seconds=document["node_seconds"],
            seed=document["seed"],
            heartbeat=None if document["heartbeat"] is None else Path(document["heartbeat"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTiming:
    """One network in one freshly loaded session. Percentiles are over single calls, in milliseconds."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    calls: int
    reference_p50_ms: float
    """The reference network, timed in turns with this one."""
    load_ms: float
    memory_bytes: int
    """Growth of the process's peak resident memory by loading and first running the network; on a GPU of the device's
    memory in use."""
    cpu_share: float
    """Processor time over wall time while it was timed (with n threads up to n); on a GPU of the thread that feeds
    it."""
    disturbance: str | None
    """Reason why the times cannot be trusted, None on a quiet machine."""
    p90_upper_ms: float | None = None
    """Upper confidence bound of the 90th percentile (`nas.measure.statistics.upper_percentile`); None where too
    few calls were made for one. Likewise of the 99th."""
    p99_upper_ms: float | None = None
    p90_lower_ms: float | None = None
    """Lower confidence bound of the 90th percentile, likewise; None also where it was not recorded."""
    p99_lower_ms: float | None = None
    attempts_ms: tuple[tuple[float, float | None, float | None], ...] = ()
    """Of other attempts at a session that stayed disturbed: median and the two upper bounds. A limit has to be kept by
    them, too: of several disturbed attempts the fastest is luck."""
    energy_mj: float | None = None
    """Energy per call of the processor packages, or of the GPU's board, everything else that ran on them included; None
    where it cannot be read."""
    preprocess_ms: float | None = None
    """Median time from the example to the network's input, in calls that cover the pipeline; None in others."""
    postprocess_ms: float | None = None
    """Likewise from the network's output to the answer."""
    network_ms: float | None = None
    """Likewise of the network between them."""
    device_ms: float | None = None
    """Time of one call on a GPU alone, see `nas.measure.devices.probe.DeviceProbe.device_ms`; None where that is not
    another thing than the call, or not known."""
    nodes_p50_ms: float | None = None
    """Median of calls in a row without a profiler, right before the operators were timed, for half as long; None
    where they were not. What was just timed in turns with other networks is slower for some calls."""
    nodes: tuple[NodeTime, ...] = ()
    """Operators in the order they run, where they were asked for and the runtime can time them."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SessionTiming:
        nodes = tuple(NodeTime(**node) for node in document.get("nodes", ()))
        attempts_ms = tuple(tuple(attempt) for attempt in document.get("attempts_ms", ()))
        return cls(**{**document, "nodes": nodes, "attempts_ms": attempts_ms})
