"""Energy of the processor packages, from the kernel's power capping counters (RAPL), where it lets us read them."""

from collections.abc import Sequence
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


def package_counters(root: Path = POWERCAP) -> tuple[Path, ...]:
    """The energy counters of whole packages; their parts (cores, memory) are counted in them and left out, and so is
    the platform (`psys`), which counts the packages again."""
    return tuple(
        sorted(p / "energy_uj" for p in root.glob("*-rapl:*") if p.name.count(":") == 1 and not _is_platform(p))
    )


def _is_platform(domain: Path) -> bool:
    try:
        return (domain / "name").read_text(encoding="ascii").strip() == "psys"
    except (OSError, ValueError):
        return False


def energy_j(counters: Sequence[Path] | None = None) -> float | None:
    """Joules of all packages since some moment in the past; None where they cannot be read."""
    found = package_counters() if counters is None else counters
    if not found:
        return None
    try:
        return sum(int(counter.read_text(encoding="ascii")) for counter in found) / 1e6
    except (OSError, ValueError):
        return None


def why_no_energy(root: Path = POWERCAP) -> str | None:
    """Reason why energy is not measured here, None where it is."""
    counters = package_counters(root)
    if not counters:
        return f"this host has no energy counters below {root}"
    if energy_j(counters) is None:
        return f"{counters[0]} may not be read by this user"
    return None
