"""Time of each operator of a network, as its runtime's own profiler says."""

from collections.abc import Callable, Sequence
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


@runtime_checkable
class NodeTimer(Protocol):
    """A runtime that can time operators. Asked for beside the timing of the whole network, never during it."""

    def node_times(self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float) -> list[NodeTime]:
        """Times of the operators in the order they run, over calls with `inputs` for about `seconds`.

        Raises as `Runtime.load` does.
        """
        ...


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
