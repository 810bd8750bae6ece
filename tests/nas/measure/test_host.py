import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nas.machine import (
    available_memory_bytes,
    cgroup_free_bytes,
    cgroup_memory_bytes,
    cgroup_quota_cores,
    is_on_network,
    parse_cfs_quota,
    parse_cpu_max,
    parse_meminfo,
)
from nas.measure.host import (
    HostFingerprint,
    differences,
    fingerprint,
    isa_of_interest,
    parse_cpu_identity,
    usable_threads,
)
from nas.measure.procfs import (
    MemoryStatus,
    Snapshot,
    memory_status,
    parse_memory_status,
    parse_steal_ticks,
    parse_waiting_ns,
)

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping\t: 8
flags\t\t: fpu sse2 avx2 avx512f avx512_vnni amx_int8

processor\t: 1
model name\t: another
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\nCPU revision\t: 1\n"


def test_cpu_identity() -> None:
    assert parse_cpu_identity(X86) == ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "6/143/8")
    assert parse_cpu_identity(ARM) == ("", "0x41/0xd40/1")
    assert parse_cpu_identity("") == ("", "")


def test_isa_of_interest() -> None:
    flags = frozenset(["fpu", "sse2", "avx", "avx2", "avx512f", "avx512_vnni", "amx_int8", "avx512_bf16"])
    assert isa_of_interest(flags) == ("amx_int8", "avx2", "avx512_bf16", "avx512_vnni", "avx512f")


def test_quota_formats() -> None:
    assert parse_cpu_max("150000 100000") == 1.5
    assert parse_cpu_max("max 100000") is None
    assert parse_cfs_quota("200000", "100000") == 2.0
    assert parse_cfs_quota("-1", "100000") is None


MOUNTS = """/dev/vda / ext4 rw,relatime 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/me/fast\\040disk xfs rw 0 0
sshfs /mnt/far fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "on_network"),
    [
        ("/var/run.db", False), ("/homes/me", False), ("/home/me/run.db", True), ("/home/me/fast disk/run.db", False),
        ("/mnt/far/run.db", True),
    ],
)  # fmt: skip
def test_files_on_a_network_are_told_by_their_mount(path: str, on_network: bool) -> None:
    assert is_on_network(Path(path), MOUNTS) == on_network
    assert not is_on_network(Path(path), "")


def test_meminfo() -> None:
    assert parse_meminfo("MemTotal:       24 kB\nMemAvailable:   12 kB\n") == 24 * 1024
    assert parse_meminfo("MemTotal: 24 kB\n", "MemAvailable") is None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def test_version_2_group_takes_the_lowest_limit_on_the_way_up(tmp_path: Path) -> None:
    _write(tmp_path / "outer/cpu.max", "100000 100000\n")
    _write(tmp_path / "outer/inner/cpu.max", "max 100000\n")
    _write(tmp_path / "outer/inner/memory.max", "1048576\n")
    _write(tmp_path / "outer/memory.max", "max\n")
    assert cgroup_quota_cores(tmp_path, "0::/outer/inner\n") == 1.0
    assert cgroup_memory_bytes(tmp_path, "0::/outer/inner\n") == 2**20
    assert cgroup_quota_cores(tmp_path, "0::/\n") is None


def test_a_container_may_not_take_what_is_free_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (available_memory_bytes() or 0) > 2**20
    monkeypatch.setattr("nas.machine.cgroup_free_bytes", lambda: 2**20)
    assert available_memory_bytes() == 2**20


def test_what_a_container_uses_already_is_not_free(tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    _write(newer / "job/memory.max", "1000\n")
    _write(newer / "job/memory.current", "700\n")
    _write(newer / "job/memory.stat", "anon 400\ninactive_file 200\n")
    assert cgroup_free_bytes(newer, "0::/job\n") == 500, "cached files are given back"
    older = tmp_path / "older"
    _write(older / "memory/job/memory.limit_in_bytes", "1000\n")
    _write(older / "memory/job/memory.usage_in_bytes", "1100\n")
    assert cgroup_free_bytes(older, "5:memory:/job\n") == 0
    assert cgroup_free_bytes(tmp_path / "none", "0::/job\n") is None


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
def test_version_1_group(tmp_path: Path, folder: str) -> None:
    _write(tmp_path / folder / "job/cpu.cfs_quota_us", "250000\n")
    _write(tmp_path / folder / "job/cpu.cfs_period_us", "100000\n")
    assert cgroup_quota_cores(tmp_path, f"5:memory:/job\n4:{folder}:/job\n0::/\n") == 2.5


def test_container_sees_its_group_at_the_root(tmp_path: Path) -> None:
    _write(tmp_path / "cpu.max", "50000 100000\n")
    assert cgroup_quota_cores(tmp_path, "0::/outer/name/that/is/not/mounted\n") == 0.5


def test_usable_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nas.measure.host.performance_cores", lambda cpus: (0, 1, 2, 3))
    for quota, expected in ((None, 4), (2.9, 2), (0.5, 1), (64.0, 4)):
        monkeypatch.setattr("nas.measure.host.cgroup_quota_cores", lambda quota=quota: quota)
        assert usable_threads() == expected


def test_fingerprint_of_this_host_round_trips() -> None:
    here = fingerprint()
    assert here.cores >= usable_threads() >= 1
    assert "numpy" in dict(here.packages)
    again = HostFingerprint.from_json(json.loads(json.dumps(here.to_json())))
    assert again == here
    assert differences(here, again) == []


def test_differences_are_in_words() -> None:
    here = fingerprint()
    there = replace(
        here, cpu_model="Other", quota_cores=1.5, isa=(*here.isa, "zz_new"), packages=(("numpy", "0.1"),), gpu="G"
    )
    found = differences(here, there)
    assert f"processor: {here.cpu_model} here, Other there" in found
    assert "instruction set zz_new: there only" in found
    assert f"numpy: {dict(here.packages)['numpy']} here, 0.1 there" in found
    assert any(line.startswith("GPU: ") for line in found)
    assert any(line.startswith("CPU quota in cores: ") for line in found)


def test_steal_of_the_pinned_cores_only() -> None:
    stat = "cpu  1 0 1 9 0 0 0 30 0 0\ncpu0 1 0 1 9 0 0 0 10 0 0\ncpu1 1 0 1 9 0 0 0 20 0 0\ncpu10 0 0 0 0 0 0 0 99\n"
    assert parse_steal_ticks(stat, [1]) == 20
    assert parse_steal_ticks(stat, [0, 1]) == 30
    assert parse_steal_ticks("cpu0 1 2 3 4\n", [0]) == 0


def test_thread_and_memory_accounts() -> None:
    assert parse_waiting_ns("123 456 7\n") == 456
    status = "Name:\tpython\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n"
    assert parse_memory_status(status) == MemoryStatus(2**20, 2**21, 2**20)
    assert parse_memory_status(status + "RssAnon:\t     512 kB\n") == MemoryStatus(2**20, 2**21, 2**19)
    assert memory_status(2**30) == MemoryStatus(0, 0, 0)
    own = memory_status()
    assert own.peak_bytes >= own.resident_bytes > own.private_bytes > 2**20


def test_pages_of_a_mapped_file_are_nobodys_own(tmp_path: Path) -> None:
    """Data that all workers map must not end them (as `nas.executors.shared_data` does it)."""
    size = 2**26
    np.save(tmp_path / "a.npy", np.ones(size, np.uint8))
    before = memory_status()
    mapped = np.load(tmp_path / "a.npy", mmap_mode="c")
    assert int(mapped.sum(dtype=np.int64)) == size
    after = memory_status()
    assert after.resident_bytes - before.resident_bytes > size // 2
    assert after.private_bytes - before.private_bytes < size // 8
    mapped[:] = 2
    assert memory_status().private_bytes - before.private_bytes > size // 2, "written pages are its own"


def test_snapshot_difference() -> None:
    before = Snapshot(10.0, 5.0, 1.0, 0.0, 7, 100.0)
    activity = Snapshot(12.0, 6.5, 1.25, 0.1, 9, 103.5) - before
    assert (activity.wall_s, activity.cpu_s, activity.waiting_s, activity.steal_s) == (2.0, 1.5, 0.25, 0.1)
    assert activity.involuntary_switches == 2
    assert activity.energy_j == 3.5
    assert (Snapshot(12.0, 6.5, None, 0.1, 9, None) - before).waiting_s is None
    assert (Snapshot(12.0, 6.5, None, 0.1, 9, None) - before).energy_j is None
    assert (Snapshot(12.0, 6.5, None, 0.1, 9, 1.0) - before).energy_j is None, "the counter began anew"
