"""One GPU as its driver's management library (NVML) sees it, read only: energy, clock, slowdowns, other processes.

Needs the optional package `nvidia-ml-py`. What a driver or a GPU does not tell is None, and nothing is raised.
"""

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU at one moment, to stand beside the figures of that moment; None for what is not told."""

    driver: str | None
    clock_mhz: int | None
    """Of the multiprocessors; likewise the highest that they can have."""
    max_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    """Drawn by the board; on some GPUs sampled a quarter of the time (arXiv 2312.02741), so never a base of energy."""
    power_limit_w: float | None
    slowdown: str | None
    """Reason why the clock is held down; None also where it is not."""
    processes: int | None
    """That have memory on it, ours included."""
    ecc: bool | None
    """Memory with error correction."""
    mig: bool | None
    """Divided into instances."""


class Nvml(Protocol):
    """See the module."""

    def state(self) -> GpuState:
        """Everything that is told about the GPU now."""
        ...

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


_CHIP = 0
"""NVML's number of the sensor on the chip."""


class PyNvml:
    """The GPU with that UUID (`GPU-...`), through `nvidia-ml-py`; see `nvml_of`."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    def state(self) -> GpuState:
        library, handle = self._library, self._handle
        power_mw = self._told(lambda: int(library.nvmlDeviceGetPowerUsage(handle)))
        limit_mw = self._told(lambda: int(library.nvmlDeviceGetEnforcedPowerLimit(handle)))
        present = self.processes()
        return GpuState(
            driver=self._told(lambda: str(library.nvmlSystemGetDriverVersion())),
            clock_mhz=self.clock_mhz(),
            max_clock_mhz=self._told(lambda: int(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM))),
            memory_clock_mhz=self._told(lambda: int(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM))),
            temperature_c=self._told(lambda: int(library.nvmlDeviceGetTemperature(handle, _CHIP))),
            power_w=None if power_mw is None else power_mw / 1e3,
            power_limit_w=None if limit_mw is None else limit_mw / 1e3,
            slowdown=self.slowdown(),
            processes=None if present is None else len(present),
            ecc=self._told(lambda: bool(library.nvmlDeviceGetEccMode(handle)[0])),
            mig=self._told(lambda: bool(library.nvmlDeviceGetMigMode(handle)[0])),
        )

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
