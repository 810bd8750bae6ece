"""One network in several deployments, as they were tried."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.deploy.answers import Answers
from nas.deploy.onnx import Parity
from nas.deployment import ALONE, PIPELINE, Deployment
from nas.measure.measurement import Measurement
from nas.networks.description import NetworkDescription

FP32, INT8 = "fp32", "int8"


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
    answers: Answers | None = None
    """Those that `accuracy` is the share of right ones of; None where it is no such share, or they were not kept."""
    beside: Measurement | None = None
    """The chosen file in the pattern `other_calls_ms`; None for the others, and where nothing is measured."""
    across: Measurement | None = None
    """The chosen file with times of the other extent: of the pipeline where those of the network alone were asked for,
    and the other way round; None likewise."""
    size_bytes: int | None = None
    """Bytes of all files its runtime loads."""
    in_float: str = ""
    """The part (of `nas.deploy.float_parts.FLOAT_PARTS`) that int8 leaves in floating point; empty: none."""
    in_training: bool = False
    """Int8 whose ranges, and weights, were learnt in training (`nas.finetune.quantisation`), not calibrated later."""
    fewer_threads: bool = False
    """The file of another deployment with fewer threads than that has."""
    mirrored: bool = False
    """The network is asked about the input and its mirror image, see `nas.tasks.task.Task.mirrored`."""
    accepted: bool = False
    chosen: bool = False
    reason: str = ""
    """Reason why it was rejected or not chosen; empty for the chosen one."""

    @property
    def name(self) -> str:
        """Name for people: `onnxruntime-int8`, `onnxruntime-int8 (last layer in float)`."""
        ways = [
            f"{self.in_float} in float" if self.in_float else "",
            "quantised in training" if self.in_training else "",
            f"{self.deployment.threads} thread{'s' * (self.deployment.threads > 1)}" if self.fewer_threads else "",
            "mirrored views" if self.mirrored else "",
        ]
        way = ", ".join(filter(None, ways))
        return f"{self.deployment.name} ({way})" if way else self.deployment.name

    @property
    def p50_ms(self) -> float:
        return self.measurement.p50_ms if self.measurement is not None else math.nan

    @property
    def p50_by_calls_ms(self) -> dict[str, float | None]:
        """Median latency by pattern of calls, that which was asked for first; None where a pattern was not kept."""
        known = [m for m in (self.measurement, self.beside) if m is not None]
        return {m.request.deployment.calls: m.p50_ms if m.failed is None else None for m in known}

    @property
    def pipeline_ms(self) -> dict[str, float] | None:
        """Median times in the pattern that was asked for: of the network, of what goes before and after it, and of all
        together; None where they were not measured.

        The network's time is that of calls of it alone, and where there was no time for these that in the calls of all.
        """
        known = {m.request.deployment.covers: m for m in (self.measurement, self.across) if m and m.failed is None}
        whole = known.get(PIPELINE)
        if whole is None:
            return None
        network = known[ALONE].p50_ms if ALONE in known else whole.network_ms
        before, after = whole.preprocess_ms, whole.postprocess_ms
        if before is None or network is None or after is None:
            return None
        return {"preprocess": before, "network": network, "postprocess": after, "total": whole.p50_ms}

    def to_json(self) -> dict[str, Any]:
        measured = self.measurement if self.measurement and self.measurement.failed is None else None
        return {
            "name": self.name,
            "p50_ms": measured.p50_ms if measured else None,
            "p90_ms": measured.p90_ms if measured else None,
            "p99_ms": measured.p99_ms if measured else None,
            "worst_session_p50_ms": measured.worst_session_p50_ms if measured else None,
            "accuracy": self.accuracy,
            "size_bytes": self.size_bytes,
            "memory_bytes": measured.memory_bytes if measured else None,
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
    doubt: str | None = None
    """Why nothing is chosen though a file might keep the limits: what disturbed its measurement; else None."""

    @property
    def chosen(self) -> TriedDeployment | None:
        """The deployment to deliver; None where none is acceptable."""
        return next((t for t in self.tried if t.chosen), None)


def files_of(path: Path) -> list[Path]:
    """All files a runtime loads where it is given `path`: `path` itself first."""
    beside = {
        ".xml": path.with_suffix(".bin"),
        ".json": path.with_name(path.name.removesuffix(".network.json") + ".safetensors"),
        ".onnx": path.with_name(path.name + ".data"),
    }.get(path.suffix)
    return [path, beside] if beside is not None and beside.exists() else [path]


def files_bytes(path: Path) -> int:
    """Bytes of all files a runtime loads where it is given `path`."""
    return sum(p.stat().st_size for p in files_of(path))
