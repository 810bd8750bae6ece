"""Processor time that other processes take: what is measured beside them is not this machine's usual speed."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
SPARE = 0.25
"""Cores that may be missing before a machine is called busy: system services always take a little."""

LOOK_S = 0.2
"""Seconds that tell a busy machine from a quiet one: twenty ticks of each core."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Running totals, in seconds."""

    wall_s: float
    busy_s: float
    """Of all cores, for whomever, with what the hypervisor gave to others."""
    own_s: float
    """Of this process and those of its children that have ended."""


def processor_times() -> ProcessorTimes:
    """The totals now. Where the system does not tell, only this process was ever busy."""
    own = os.times()
    own_s = own.user + own.system + own.children_user + own.children_system
    try:
        busy_s = parse_busy_ticks(_STAT.read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")
    except OSError:
        busy_s = own_s
    return ProcessorTimes(time.monotonic(), busy_s, own_s)


def parse_busy_ticks(stat: str) -> int:
    """Ticks that all cores were not idle, from the text of `/proc/stat`."""
    row = next((line.split() for line in stat.splitlines() if line.startswith("cpu ")), [])
    user, nice, system, _idle, _iowait, *others = (int(field) for field in row[1:9]) if len(row) > 5 else (0,) * 5
    return user + nice + system + sum(others)


def others_cores(earlier: ProcessorTimes, later: ProcessorTimes) -> float:
    """Cores that others kept busy on average between two moments."""
    wall_s = max(later.wall_s - earlier.wall_s, 1e-9)
    return max(0.0, (later.busy_s - earlier.busy_s) - (later.own_s - earlier.own_s)) / wall_s


def is_crowded(others: float, threads: int, cores: int | None = None) -> bool:
    """True if others keep so many cores busy that so many threads do not have one each. `cores`: of the machine."""
    return others > (cores or os.cpu_count() or 1) - threads + SPARE


def crowded_now(threads: int | None = None, seconds: float = LOOK_S) -> bool:
    """True if others keep the cores busy just now. Looks for so many seconds, in which this process should do nothing.

    `threads`: that want a core each; None: as many as there are cores.
    """
    earlier = processor_times()
    time.sleep(seconds)
    return is_crowded(others_cores(earlier, processor_times()), threads or os.cpu_count() or 1)
