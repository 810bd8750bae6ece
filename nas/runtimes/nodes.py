"""Time of each operator of a network, as its runtime's own profiler says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from nas.deployment import Deployment
from nas.runtimes.base import Inputs


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One operator of the network as the runtime runs it, after its own fusions."""

    name: str
    """Name of the ONNX node it was made from; operators the runtime adds itself have names of its own."""
    ms: float
    """Mean over the calls."""
    kind: str = ""
    """Type of the operator that ran, in the runtime's words (`QLinearConv`, `Reorder`); empty where it does not say."""
    precision: str = ""
    """What it really computed in: `fp32`, `bf16`, `fp16` or `int8`; empty where the runtime does not say."""


@runtime_checkable
class NodeTimer(Protocol):
    """A runtime that can time operators. Asked for beside the timing of the whole network, never during it."""

    def node_times(self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float) -> list[NodeTime]:
        """Times of the operators in the order they run, over calls with `inputs` for about `seconds`.

        Raises as `Runtime.load` does.
        """
        ...


_PRECISIONS: Mapping[str, str] = {
    "f32": "fp32", "float": "fp32", "bf16": "bf16", "bfloat16": "bf16", "f16": "fp16", "float16": "fp16",
    "i8": "int8", "u8": "int8", "int8": "int8", "uint8": "int8",
}  # fmt: skip


def precision_of(element_type: str) -> str:
    """The precision that a runtime's name of an element type stands for; empty for any other type."""
    return _PRECISIONS.get(element_type.lower(), "")


def typical(times: Sequence[float]) -> float:
    """Mean without the slowest tenth (first calls, interruptions), in the unit of `times`; at least one."""
    kept = np.sort(np.asarray(times, dtype=np.float64))[: max(1, len(times) * 9 // 10)]
    return float(kept.mean())


def run_for(seconds: float, clock: Callable[[], float], call: Callable[[], object]) -> None:
    """Call repeatedly until `seconds` have passed, at least once."""
    deadline = clock() + seconds
    while True:
        call()
        if clock() >= deadline:
            return
