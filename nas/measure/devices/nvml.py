"""One GPU as its driver's management library (NVML) sees it, read only: energy, clock, slowdowns, other processes.

Needs the optional package `nvidia-ml-py`. What a driver or a GPU does not tell is None, and nothing is raised.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
}
"""Bits of NVML's reasons for a lower clock that tell a disturbance. Idleness, clocks that an administrator has set, and
the power limit are no disturbances: a large network runs at the power limit all the time."""


class Nvml(Protocol):
    """See the module."""

    def energy_j(self) -> float | None:
        """Joules of the whole board since its driver was loaded; the counter moves every 20 to 100 ms."""
        ...

    def clock_mhz(self) -> int | None:
        """Clock of the multiprocessors now."""
        ...

    def slowdown(self) -> str | None:
        """Reason why the clock is held down now, in words; None where it is not, or that is not told."""
        ...

    def processes(self) -> frozenset[int] | None:
        """Processes that have memory on the GPU, ours included: numbers as the host sees them, also in a container."""
        ...

    def busy_since(self, time_us: int) -> frozenset[int] | None:
        """Processes that computed on the GPU since `time_us` (microseconds since 1970)."""
        ...


class PyNvml:
    """The GPU with that UUID (`GPU-...`), through `nvidia-ml-py`; see `nvml_of`."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    def energy_j(self) -> float | None:
        energy_mj = self._told(lambda: int(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)))
        return None if energy_mj is None else energy_mj / 1e3

    def clock_mhz(self) -> int | None:
        return self._told(lambda: int(self._library.nvmlDeviceGetClockInfo(self._handle, self._library.NVML_CLOCK_SM)))

    def slowdown(self) -> str | None:
        reasons = self._told(lambda: int(self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)))
        return ", ".join(word for bit, word in SLOWDOWNS.items() if (reasons or 0) & bit) or None

    def processes(self) -> frozenset[int] | None:
        found = self._told(lambda: self._library.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return None if found is None else frozenset(int(process.pid) for process in found)

    def busy_since(self, time_us: int) -> frozenset[int] | None:
        try:
            samples = self._library.nvmlDeviceGetProcessUtilization(self._handle, time_us)
        except self._library.NVMLError_NotFound:  # no process computed
            return frozenset()
        except self._library.NVMLError:
            return None
        return frozenset(int(sample.pid) for sample in samples if sample.smUtil > 0)

    def _told(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except self._library.NVMLError:
            return None


def nvml_of(uuid: str) -> Nvml | str:
    """The GPU with that UUID, or why NVML cannot be asked about it (a sentence part)."""
    if find_spec("pynvml") is None:
        return "the package nvidia-ml-py is not installed"
    import pynvml

    try:
        pynvml.nvmlInit()
        return PyNvml(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return f"NVML cannot be asked: {error}"
