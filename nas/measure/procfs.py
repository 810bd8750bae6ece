"""Readings of the kernel about this process and its cores while a network is timed (Linux's `/proc`)."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nas.measure.energy import energy_j
from nas.measure.statistics import Activity

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """Resident memory of a process, now and at its peak."""

    resident_bytes: int
    peak_bytes: int
    private_bytes: int
    """The part of it that no file holds: pages of mapped files can be given up at any time, and processes share them.
    All of it, where the system does not tell."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Running totals at one moment; the difference of two is an `Activity`."""

    wall_s: float
    cpu_s: float
    waiting_s: float | None
    steal_s: float
    involuntary_switches: int
    energy_j: float | None

    def __sub__(self, earlier: "Snapshot") -> Activity:
        energy = None if self.energy_j is None or earlier.energy_j is None else self.energy_j - earlier.energy_j
        both = self.waiting_s is not None and earlier.waiting_s is not None
        return Activity(
            wall_s=self.wall_s - earlier.wall_s,
            cpu_s=self.cpu_s - earlier.cpu_s,
            waiting_s=max(0.0, (self.waiting_s or 0.0) - (earlier.waiting_s or 0.0)) if both else None,
            steal_s=self.steal_s - earlier.steal_s,
            involuntary_switches=self.involuntary_switches - earlier.involuntary_switches,
            energy_j=energy if energy is None or energy >= 0 else None,  # the counter began anew
        )


def snapshot(cores: Sequence[int]) -> Snapshot:
    """Totals of this process, and of the steal time of `cores`."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Snapshot(
        wall_s=time.perf_counter(),
        cpu_s=time.process_time(),
        waiting_s=_waiting_s(),
        steal_s=_steal_s(cores),
        involuntary_switches=usage.ru_nivcsw,
        energy_j=energy_j(),
    )


def parse_steal_ticks(stat: str, cores: Sequence[int]) -> int:
    """Sum of the steal column (the 8th) of `cores` in the text of `/proc/stat`."""
    names = {f"cpu{core}" for core in cores}
    rows = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    return sum(int(row[8]) for row in rows if row[0] in names and len(row) > 8)


def parse_waiting_ns(schedstat: str) -> int:
    """Nanoseconds a thread was ready but not running, from the text of its `schedstat`."""
    return int(schedstat.split()[1])


def parse_memory_status(status: str) -> MemoryStatus:
    """Memory of a process, from the text of `/proc/PID/status`."""
    sizes = {}
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key in ("VmRSS", "VmHWM", "RssAnon"):
            sizes[key] = int(value.split()[0]) * 1024
    resident = sizes.get("VmRSS", 0)
    return MemoryStatus(resident, sizes.get("VmHWM", 0), sizes.get("RssAnon", resident))


def memory_status(pid: int | None = None) -> MemoryStatus:
    """Memory of this process or another; zero where it is gone or the system does not tell."""
    try:
        return parse_memory_status((_PROC / str(pid or "self") / "status").read_text(encoding="utf-8"))
    except OSError:
        return MemoryStatus(0, 0, 0)


def clear_peak_memory() -> None:
    """Restart this process's peak resident memory from what it holds now, where the kernel allows it."""
    with contextlib.suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5", encoding="utf-8")


def _waiting_s() -> float | None:
    total = 0
    try:
        for task in os.scandir(_PROC / "self" / "task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end while we look
                total += parse_waiting_ns(Path(task.path, "schedstat").read_text(encoding="ascii"))
    except OSError:
        return None
    return total / 1e9


def _steal_s(cores: Sequence[int]) -> float:
    try:
        stat = (_PROC / "stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return parse_steal_ticks(stat, cores) / os.sysconf("SC_CLK_TCK")


def die_with_parent() -> None:
    """Have the kernel end this process with the one that started it, also when that is killed. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_PR_SET_PDEATHSIG = 1
