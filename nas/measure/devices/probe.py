"""The part of a worker that differs between a processor and a GPU: everything that measuring needs of a device."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nas.deployment import Deployment
from nas.runtimes.base import Inputs, Session
from nas.runtimes.nodes import NodeTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A device while one network was timed, summed over its windows."""

    cpu_share: float
    """Processor time of this process over wall time (with n threads up to n)."""
    energy_j: float | None
    """Joules of the device, everything else that ran on it included; None where they cannot be read."""
    disturbance: str | None
    """Reason why these times cannot be trusted, in words; None where the device was quiet."""


class Watch(Protocol):
    """Watches the device during the windows of one network. Neither call may come between the calls that are timed."""

    def begin(self) -> None:
        """A window of timed calls begins."""
        ...

    def end(self) -> None:
        """The window of timed calls ends."""
        ...

    def observation(self) -> Observation:
        """All windows so far; at least one."""
        ...


class DeviceProbe(Protocol):
    """One device in one process that measures on it."""

    @property
    def device(self) -> str:
        """Name of the device in deployments: `cpu`, `cuda:0`."""
        ...

    def pin(self) -> None:
        """Keep this process on the cores of the host that it may use: before any library starts threads."""
        ...

    def initialise(self, runtimes: Iterable[str], reference: Path | None) -> None:
        """Start the device and the libraries of `runtimes` (unknown and missing ones are left out), so that the first
        network is not charged with their time and memory. `reference`: the file of `reference_model`."""
        ...

    def reference(self, model: Path | None) -> Session:
        """The reference network, loaded on this device: how fast *it* is now. `model` as for `initialise`."""
        ...

    def settle_memory(self) -> int:
        """Give freed memory back and restart the peak; bytes in use then."""
        ...

    def peak_memory(self) -> int:
        """Largest number of bytes in use since `settle_memory`, or those in use now where the device keeps no peak."""
        ...

    def synchronise(self) -> None:
        """Wait until nothing of earlier calls runs any more."""
        ...

    def watch(self, *, pauses: bool = False) -> Watch:
        """A watch for one network; `pauses`: whose calls have rests between them, in which the process sleeps."""
        ...

    def energy_j(self) -> float | None:
        """Joules since some moment in the past; None where they cannot be read."""
        ...

    def why_no_energy(self) -> str | None:
        """Reason why `energy_j` knows nothing, None where it does. May be asked before anything else."""
        ...

    def device_ms(self, session: Session, inputs: Inputs, seconds: float) -> float | None:
        """Milliseconds of one call of `session` on the device alone, without the host's part and without copies, from
        calls for about `seconds` besides those that are timed; `inputs` are one call's. None where the device is the
        host itself, or the session cannot tell."""
        ...

    def operator_times(
        self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float
    ) -> tuple[NodeTime, ...]:
        """Times of a network's operators in the order they run, from calls for about `seconds` besides those that are
        timed; empty where runtime and device cannot tell. Raises as `Runtime.load` does."""
        ...
