"""Which processors are cores of their own and fast: neither a second thread of a core, nor one that saves power."""

from collections.abc import Sequence
from pathlib import Path

SYSFS = Path("/sys/devices")
FAST_SHARE = 0.7
"""Cores below this share of the largest capacity are efficiency cores (Arm's `cpu_capacity`: 1024 is the fastest)."""


def performance_cores(cpus: Sequence[int], root: Path = SYSFS) -> tuple[int, ...]:
    """The number of one processor of each fast core among `cpus`, ascending.

    Two threads of a core share its arithmetic, and an efficiency core lets all others wait for it: a network that is
    spread over either is slower than on fewer cores. Where the kernel does not tell, each processor is a core.

    Args:
        cpus: numbers of processors.
        root: where the kernel describes devices.
    """
    first: dict[frozenset[int], int] = {}
    for cpu in sorted(cpus):
        told = _read(root / f"system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first.setdefault(frozenset(parse_cpu_list(told)) | {cpu} if told else frozenset({cpu}), cpu)
    cores = sorted(first.values())
    slow = set(parse_cpu_list(_read(root / "cpu_atom/cpus")))  # of Intel's hybrid processors
    capacity = {cpu: int(_read(root / f"system/cpu/cpu{cpu}/cpu_capacity") or 0) for cpu in cores}
    least = FAST_SHARE * max(capacity.values(), default=0)
    fast = tuple(cpu for cpu in cores if cpu not in slow and capacity[cpu] >= least)
    return fast or tuple(cores)  # where the process may run on efficiency cores alone


def parse_cpu_list(text: str) -> list[int]:
    """The numbers in a list as the kernel writes it: `0-2,8` is 0, 1, 2 and 8."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
