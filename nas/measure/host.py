"""Description of this host, as far as it changes latency: the fingerprint that a device profile carries."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nas.errors import UserError
from nas.machine import cgroup_quota_cores, memory_bytes
from nas.measure.topology import performance_cores
from nas.runtimes.cpu import parse_cpu_flags
from nas.runtimes.devices import nvidia_device_present

ISA_PREFIXES = ("avx2", "avx_vnni", "avx512", "amx_", "asimd", "sve", "i8mm", "bf16", "dotprod", "fp16")
PACKAGES = ("onnxruntime", "openvino", "nncf", "torch", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFingerprint:
    """Properties of a host that change how fast a network runs on it. Unknown ones are None or empty."""

    cpu_model: str
    cpu_family: str
    """Vendor's `family/model/stepping`."""
    isa: tuple[str, ...]
    """Instruction-set flags that matter to neural networks, sorted."""
    cores: int
    """Cores this process may be scheduled on."""
    quota_cores: float | None
    """CPU time per wall time that the control group allows, None where it sets no limit."""
    governor: str | None
    """Frequency governor."""
    memory_bytes: int | None
    """The machine's memory, or the control group's limit where that is lower."""
    os: str
    python: str
    packages: tuple[tuple[str, str], ...]
    """Installed runtimes: (name, version)."""
    gpu: str | None = None
    """Name and driver of the first GPU."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> HostFingerprint:
        known = {**document, "isa": tuple(document["isa"])}
        known["packages"] = tuple((name, release) for name, release in document["packages"])
        return cls(**known)


def fingerprint() -> HostFingerprint:
    """The fingerprint of this host. Imports torch only where an NVIDIA driver is present."""
    cpuinfo = _read(Path("/proc/cpuinfo")) or ""
    cpu = parse_cpu_identity(cpuinfo)
    return HostFingerprint(
        cpu_model=cpu[0] or platform.processor() or platform.machine(),
        cpu_family=cpu[1],
        isa=isa_of_interest(parse_cpu_flags(cpuinfo)),
        cores=_affinity_cores(),
        quota_cores=cgroup_quota_cores(),
        governor=_read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        memory_bytes=memory_bytes(),
        os=platform.platform(),
        python=platform.python_version(),
        packages=tuple((name, release) for name in PACKAGES if (release := _version(name)) is not None),
        gpu=_gpu(),
    )


def usable_threads() -> int:
    """Threads that can run at once: one for each fast core of the affinity mask (see `nas.measure.topology`), or fewer
    where the control group's quota is lower.

    A fraction of a core is rounded down, because a thread that is throttled now and then ruins the tail of latency.
    """
    quota = cgroup_quota_cores()
    cores = len(performance_cores(affinity())) or os.cpu_count() or 1
    return cores if quota is None else max(1, min(cores, int(quota)))


def keep_to_usable_threads() -> None:
    """Have torch compute with no more threads in this process than can run at once: it knows of no quota."""
    import torch

    torch.set_num_threads(min(torch.get_num_threads(), usable_threads()))


def threads_here(asked: int | None) -> int:
    """As many threads as were asked for, by default all that can run at once.

    Raises `UserError` for more: they would wait for each other, and what is measured would be that.
    """
    usable = usable_threads()
    if asked is not None and asked > usable:
        raise UserError(
            f"{asked} threads are more than the {usable} fast cores that this machine has for us",
            "give fewer --threads: second threads of a core and efficiency cores are not counted",
        )
    return asked or usable


_WORDS = {
    "cpu_model": "processor",
    "cpu_family": "processor family/model/stepping",
    "cores": "usable cores",
    "quota_cores": "CPU quota in cores",
    "governor": "frequency governor",
    "memory_bytes": "memory in bytes",
    "os": "operating system",
    "python": "Python",
    "gpu": "GPU",
}


def differences(ours: HostFingerprint, theirs: HostFingerprint) -> list[str]:
    """Differences between two hosts, one sentence part per property: `processor: A here, B there`; empty where there
    are none."""
    found = []
    for field in fields(HostFingerprint):
        here, there = getattr(ours, field.name), getattr(theirs, field.name)
        if here == there:
            continue
        if field.name == "isa":
            found += [f"instruction set {flag}: here only" for flag in sorted(set(here) - set(there))]
            found += [f"instruction set {flag}: there only" for flag in sorted(set(there) - set(here))]
        elif field.name == "packages":
            left, right = dict(here), dict(there)
            found += [
                f"{name}: {left.get(name, 'absent')} here, {right.get(name, 'absent')} there"
                for name in sorted(left.keys() | right.keys())
                if left.get(name) != right.get(name)
            ]
        else:
            found.append(f"{_WORDS[field.name]}: {_word(here)} here, {_word(there)} there")
    return found


def parse_cpu_identity(cpuinfo: str) -> tuple[str, str]:
    """(model name, `family/model/stepping`) of the first processor in the text of `/proc/cpuinfo`; empty if unknown."""
    first: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    parts = [first[key] for key in ("cpu family", "model", "stepping") if key in first]
    if not parts:  # Arm
        parts = [first[key] for key in ("CPU implementer", "CPU part", "CPU revision") if key in first]
    return first.get("model name", ""), "/".join(parts)


def isa_of_interest(flags: frozenset[str]) -> tuple[str, ...]:
    """The flags that decide which kernels a runtime picks, sorted."""
    return tuple(sorted(flag for flag in flags if flag.startswith(ISA_PREFIXES)))


def affinity() -> tuple[int, ...]:
    """Numbers of the cores this process may be scheduled on; empty where the system does not tell."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _affinity_cores() -> int:
    return len(affinity()) or os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu() -> str | None:
    if not nvidia_device_present() or _version("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    driver = _read(Path("/sys/module/nvidia/version")) or "unknown"
    return f"{torch.cuda.get_device_name(0)}, driver {driver}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _word(value: object) -> str:
    return "unknown or none" if value is None or value == "" else str(value)
