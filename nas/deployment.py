"""Settings of running a network on a device: the part of a target that the search chooses together with the network."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from nas.calls import CONTINUOUS_MS, calls_text

CPU = "cpu"
DYNAMIC_INT8 = "int8-dynamic"
"""Precision in which only weights have ranges of their own: those of activations are found in each call."""
Extent = Literal["network", "pipeline"]
"""What the time of a call is of: the network alone, or the whole way from an example in memory to an answer."""
EXTENTS: tuple[Extent, ...] = get_args(Extent)
ALONE, PIPELINE = EXTENTS
_CUDA = re.compile(r"cuda:(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True, order=True)
class Deployment:
    """One way to run a network: runtime, numeric precision, threads, batch size and device."""

    runtime: str
    """Key in `nas.runtimes.RUNTIMES`: `onnxruntime`, `openvino`, `torch`."""
    precision: str
    """`fp32`, `bf16`, `fp16`, `int8` (calibrated) or `DYNAMIC_INT8`."""
    threads: int
    """Intra-operator threads (>= 1); on a GPU `HOST_THREADS`, those of the host that feed it."""
    batch: int = 1
    device: str = CPU
    """`cpu`, or a CUDA device by its index: `cuda:0`."""
    interval_ms: float = CONTINUOUS_MS
    """Time from the start of one call to that of the next, see `nas.calls`; 0: the next call follows at once."""
    covers: Extent = ALONE
    """What the times of its calls are of."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.interval_ms) and self.interval_ms >= 0):
            raise ValueError(f"an interval is finite and not below 0 ms, got {self.interval_ms}")
        if self.threads < 1 or self.batch < 1:
            raise ValueError(f"threads and batch must be at least 1, got {self.threads} and {self.batch}")
        if self.covers not in EXTENTS:
            raise ValueError(f"a call covers {' or '.join(EXTENTS)}, got {self.covers!r}")
        if not is_device(self.device):
            raise ValueError(f"a device is {CPU!r} or like 'cuda:0', got {self.device!r}")

    @property
    def name(self) -> str:
        """Runtime and precision, for tables: `openvino-int8`; with the device where it is not the CPU:
        `torch-fp16@cuda:0`."""
        return _name(self.runtime, self.precision, self.device)

    @property
    def computes_in(self) -> str:
        """The type of the numbers that are multiplied: the precision, and `int8` for both kinds of it."""
        return "int8" if self.precision == DYNAMIC_INT8 else self.precision

    @property
    def calls(self) -> str:
        """The pattern of its calls for people: `continuous`, `20/s`, `idle`."""
        return calls_text(self.interval_ms)

    def called(self, interval_ms: float) -> "Deployment":
        """The same deployment, called every `interval_ms`."""
        return replace(self, interval_ms=interval_ms)

    def covering(self, covers: Extent) -> "Deployment":
        """The same deployment, with times of `covers`."""
        return replace(self, covers=covers)

    @property
    def continuous(self) -> "Deployment":
        """The same deployment as profiles know it: of the network alone, called without a pause."""
        return replace(self, interval_ms=CONTINUOUS_MS, covers=ALONE)

    @property
    def placement(self) -> "Placement":
        """Device and threads on which its calls run."""
        return Placement(self.device, self.threads)

    def fits_threads(self, threads: int | None) -> bool:
        """True if the deployment has so many threads (None: any number); a GPU has none to choose."""
        return threads is None or self.device != CPU or self.threads == threads


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """A device and the threads of the host that use it: deployments of one placement are measured in one process."""

    device: str
    threads: int


HOST_THREADS = 1
"""Threads of a deployment on a GPU: one feeds it, and the others of the host make no call faster."""


def is_device(name: str) -> bool:
    """True if `name` can be the device of a deployment, here or on another host."""
    return name == CPU or cuda_index(name) is not None


def cuda_index(device: str) -> int | None:
    """Index of a CUDA device (`cuda:1` has 1); None for what is none."""
    found = _CUDA.fullmatch(device)
    return None if found is None else int(found[1])


def name_in(entry: Mapping[str, Any]) -> str:
    """Name of the deployment that an entry of a document tells by `runtime`, `precision` and `runs_on` (the CPU where
    that is not said)."""
    return _name(entry["runtime"], entry["precision"], entry.get("runs_on") or CPU)


def _name(runtime: str, precision: str, device: str) -> str:
    return f"{runtime}-{precision}" + ("" if device == CPU else f"@{device}")


def common_batch(deployments: Iterable[Deployment]) -> int:
    """Images per call of all of `deployments`, 1 without any. Raises `ValueError` where they differ.

    A network is exported once for all of its deployments, with one static shape.
    """
    batches = {d.batch for d in deployments} or {1}
    if len(batches) > 1:
        raise ValueError(f"deployments of one network have one batch, got {sorted(batches)}")
    return batches.pop()
