"""Limits of the machine as the kernel and a container's control groups tell them (processor time and memory), how
threads wait for each other on it, and what becomes of memory that is free."""

import ctypes
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
_OLDER = "memory.limit_in_bytes", "memory.usage_in_bytes"
"""Files of version 1: the limit, and what is used."""


NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"smb3", "smbfs"}
)
"""Kinds of file systems that other machines may have open, too; all in user space (`fuse`) are taken for such."""


def is_on_network(path: Path, mounts: str | None = None) -> bool:
    """True if the file or folder, which need not exist, lies on a file system of a network.

    Args:
        path: of the file or folder.
        mounts: text of `/proc/self/mounts`; None: that of this machine. Where there is none the answer is False.
    """
    text = mounts if mounts is not None else _read(Path("/proc/self/mounts")) or ""
    place, kind, deepest = path.resolve(), "", -1
    for line in text.splitlines():
        _, where, found, *_ = line.split(" ")
        folder = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), where))
        if len(folder.parts) >= deepest and place.is_relative_to(folder):  # a later mount hides one at the same place
            kind, deepest = found, len(folder.parts)
    return kind in NETWORK_FILE_SYSTEMS or kind.split(".")[0] == "fuse"


_WAITING, _SLEEP = "OMP_WAIT_POLICY", "PASSIVE"
_SET_HERE = "NAS_THREADS_SLEEP"
"""Variable that says that the one of the policy is ours, not the user's."""


def threads_that_sleep() -> None:
    """Have torch's threads sleep while they wait for each other, in this process; to be called before torch is loaded.

    By default they spin. Beside other processes, waiting for a thread that has no core then lasts until the scheduler
    takes the core from the one that spins (`python -m experiments.busy_steps`). On a quiet machine sleeping costs 2 to
    40 % of a step, the most for small networks, so this is for busy ones. A user's own setting stays.
    """
    if _WAITING not in os.environ:
        os.environ[_WAITING] = _SLEEP
        os.environ[_SET_HERE] = "1"


_MALLOC, _KEEP = (
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"
    ":glibc.malloc.top_pad=268435456",
)
"""Free memory stays with the process, in huge pages."""
_KEPT_FROM = 8 * 2**30
"""Bytes of memory below which it is not kept: each process of a search would stay as large as it ever was."""
_KEPT_HERE = "NAS_KEEPS_MEMORY"
"""Variable that says that the allocator's settings are ours, not the user's."""


def restart_with_kept_memory() -> None:
    """Begin this process anew, as one that keeps the memory it frees; to be called before anything was done.

    A training step takes and frees hundreds of megabytes. glibc gives large blocks back to the system at once, which
    hands out others page by page and zeroes each: a tenth to a quarter of a step (`python -m
    experiments.step_memory`). The allocator reads its settings at the start of a process alone. Nothing happens where
    they are set already, by us or by the user, where the C library is not glibc, or where memory is short.
    """
    if _keeps_memory():
        os.environ |= {_MALLOC: _KEEP, _KEPT_HERE: "1"}
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def environment(*, trains: bool) -> dict[str, str]:
    """Variables for a new process: those of this one. One that trains keeps its memory; any other is without that, and
    without what `threads_that_sleep` set: a network is timed as it will be run."""
    if trains:
        ours = {_MALLOC: _KEEP, _KEPT_HERE: "1"} if _keeps_memory() else {}
        return {**os.environ, **ours}
    left_out = [(_WAITING, _SET_HERE), (_MALLOC, _KEPT_HERE)]
    names = {name for pair in left_out if pair[1] in os.environ for name in pair}
    return {name: value for name, value in os.environ.items() if name not in names}


def give_back_memory() -> None:
    """Give the memory that this process has freed back to the system, where there is little: glibc keeps much of it."""
    if memory_bytes() < _KEPT_FROM:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def _keeps_memory() -> bool:
    """True if processes that train are to keep what they free, and nobody said how memory is given back."""
    total = parse_meminfo(_read(Path("/proc/meminfo")) or "")
    limits = [limit for limit in (total, cgroup_memory_bytes()) if limit is not None]
    return _MALLOC not in os.environ and _has_glibc() and min(limits, default=0) >= _KEPT_FROM


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False


def parse_meminfo(meminfo: str, key: str = "MemTotal") -> int | None:
    """Bytes in a line of `/proc/meminfo`, None where there is no such line."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def parse_cpu_max(text: str) -> float | None:
    """Cores allowed by a version-2 control group's `cpu.max` (`QUOTA PERIOD` in microseconds, or `max PERIOD`)."""
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)


def parse_cfs_quota(quota: str, period: str) -> float | None:
    """Cores allowed by a version-1 control group's `cpu.cfs_quota_us` (-1: no limit) and `cpu.cfs_period_us`."""
    return None if int(quota) <= 0 else int(quota) / int(period)


def cgroup_folders(membership: str, controller: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Folders of a process's control groups, from its own up to the root, for `controller`.

    Args:
        membership: text of `/proc/self/cgroup`; version 1 lines name controllers, a version 2 line starts with `0::`.
        controller: `cpu` or `memory`.
        root: where control groups are mounted.
    """
    folders = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        if controllers and not base.is_dir():
            base = root / controller
        own = base / path.lstrip("/")
        # A container sees its own group mounted at the root while its membership may name the outer path.
        folders += [own, *[parent for parent in own.parents if parent == base or base in parent.parents]]
    return list(dict.fromkeys(folders))


def cgroup_quota_cores(root: Path = CGROUP_ROOT, membership: str | None = None) -> float | None:
    """The lowest CPU quota, in cores, of the control groups this process is in; None where there is no limit."""
    text = membership if membership is not None else _read(Path("/proc/self/cgroup")) or ""
    quotas = []
    for folder in cgroup_folders(text, "cpu", root):
        newer = _read(folder / "cpu.max")
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if newer is not None:
            quotas.append(parse_cpu_max(newer))
        if quota is not None and period is not None:
            quotas.append(parse_cfs_quota(quota, period))
    return min((cores for cores in quotas if cores is not None), default=None)


def cgroup_memory_bytes(root: Path = CGROUP_ROOT, membership: str | None = None) -> int | None:
    """The lowest memory limit of the control groups this process is in; None where there is no limit."""
    return min((group.limit for group in memory_groups(root, membership)), default=None)


def cgroup_free_bytes(root: Path = CGROUP_ROOT, membership: str | None = None) -> int | None:
    """Memory that the tightest of the control groups still lets its processes take; None where there is no limit."""
    return min((max(0, group.limit - group.used) for group in memory_groups(root, membership)), default=None)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group that limits memory, in bytes."""

    limit: int
    used: int
    """All that its processes hold, without cached files that would be given back when memory is needed."""


def memory_groups(root: Path = CGROUP_ROOT, membership: str | None = None) -> list[MemoryGroup]:
    """The control groups of this process that limit memory; arguments as of `cgroup_folders`."""
    text = membership if membership is not None else _read(Path("/proc/self/cgroup")) or ""
    found = []
    for folder in cgroup_folders(text, "memory", root):
        for limit_file, usage_file in (("memory.max", "memory.current"), _OLDER):
            limit = _read(folder / limit_file)
            if limit is not None and limit != "max":
                stat = dict(line.split(maxsplit=1) for line in (_read(folder / "memory.stat") or "").splitlines())
                cached = sum(
                    int(stat.get(f"total_{kind}_file", stat.get(f"{kind}_file", 0))) for kind in ("active", "inactive")
                )
                found.append(MemoryGroup(int(limit), max(0, int(_read(folder / usage_file) or 0) - cached)))
    return found


def memory_bytes() -> int:
    """The machine's memory, or the control group's limit where that is lower."""
    import psutil

    return _least(psutil.virtual_memory().total, cgroup_memory_bytes())


TRAINING_MEMORY = "NAS_TRAINING_MEMORY_BYTES"
"""Variable with the part of the memory that trainings in this process may count on, where others train beside it."""


def training_memory_bytes() -> int:
    """Memory that trainings in this process may count on: all there is, or the part that `TRAINING_MEMORY` says."""
    part = os.environ.get(TRAINING_MEMORY, "")
    return min(int(part), memory_bytes()) if part.isdecimal() else memory_bytes()


def available_memory_bytes() -> int:
    """Memory that can still be taken without swapping, on the machine and in the control group."""
    import psutil

    return _least(psutil.virtual_memory().available, cgroup_free_bytes())


def _least(machine: int, group: int | None) -> int:
    return machine if group is None else min(machine, group)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
