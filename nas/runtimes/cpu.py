"""Abilities of this host's processor, read from `/proc/cpuinfo` without importing anything heavy."""

from collections.abc import Collection
from pathlib import Path


def parse_cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Instruction-set flags of the first processor in the text of `/proc/cpuinfo` (x86 `flags`, Arm `Features`)."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Flags of this host; empty where the system has no `/proc`."""
    try:
        return parse_cpu_flags(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return frozenset()


def has_bf16(flags: frozenset[str]) -> bool:
    """True if bf16 arithmetic is done in hardware (elsewhere it is emulated, slower than fp32)."""
    return not flags.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


def has_int8_dot_product(flags: frozenset[str]) -> bool:
    """True if products of 8-bit numbers are summed in 32 bits at once."""
    return not flags.isdisjoint({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})


def saturates_int8(isa: Collection[str] | None) -> bool:
    """True where a processor with the instruction sets `isa` (None: this one) has no dot products of 8 bits.

    Sums of two products can saturate 16 bits there, and those with weights of 7 bits cannot.
    """
    return not has_int8_dot_product(cpu_flags() if isa is None else frozenset(isa))


def largest_int8_weight(isa: Collection[str] | None) -> int:
    """Largest absolute 8-bit weight that such a processor (see `saturates_int8`) multiplies rightly, whatever 8-bit
    activations it meets: 2 * 255 * 127 exceeds 16 bits."""
    return 64 if saturates_int8(isa) else 127
