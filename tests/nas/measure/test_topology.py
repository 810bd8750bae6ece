"""Cores of machines that the kernel describes in files."""

from pathlib import Path

import pytest

from nas.measure import host
from nas.measure.topology import parse_cpu_list, performance_cores
from nas.targets import kit_measure


def describe(root: Path, siblings: dict[int, str], capacity: dict[int, int] | None = None, atom: str = "") -> Path:
    """The kernel's files of a machine, below `root`."""
    for cpu, text in siblings.items():
        folder = root / f"system/cpu/cpu{cpu}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology" / "thread_siblings_list").write_text(f"{text}\n")
        if capacity:
            (folder / "cpu_capacity").write_text(f"{capacity[cpu]}\n")
    if atom:
        (root / "cpu_atom").mkdir()
        (root / "cpu_atom" / "cpus").write_text(f"{atom}\n")
    return root


def test_lists_as_the_kernel_writes_them() -> None:
    assert parse_cpu_list("0-2,8\n") == [0, 1, 2, 8]
    assert parse_cpu_list("5") == [5]
    assert parse_cpu_list("") == []


def test_second_threads_of_a_core_are_none(tmp_path: Path) -> None:
    side_by_side = describe(tmp_path / "a", {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert performance_cores(range(4), side_by_side) == (0, 2)
    assert performance_cores([1, 2, 3], side_by_side) == (1, 2), "a core of which one thread may be used"
    far_apart = describe(tmp_path / "b", {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    assert performance_cores(range(4), far_apart) == (0, 1)


def test_efficiency_cores_are_left_out_where_there_are_others(tmp_path: Path) -> None:
    siblings = {0: "0-1", 1: "0-1", 2: "2", 3: "3"}
    hybrid = describe(tmp_path / "x86", siblings, atom="2-3")
    assert performance_cores(range(4), hybrid) == (0,)
    assert performance_cores([2, 3], hybrid) == (2, 3), "nothing else may be used"
    arm = describe(tmp_path / "arm", {c: str(c) for c in range(6)}, {0: 250, 1: 250, 2: 250, 3: 870, 4: 870, 5: 1024})
    assert performance_cores(range(6), arm) == (3, 4, 5)


def test_a_kit_sees_the_same_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = describe(tmp_path / "m", {0: "0-1", 1: "0-1", 2: "2", 3: "3", 4: "4"}, atom="3-4")
    for usable in ({0, 1, 2, 3, 4}, {1, 2}, {3, 4}):
        monkeypatch.setattr(kit_measure.os, "sched_getaffinity", lambda pid, usable=usable: usable)
        assert tuple(kit_measure.fast_cores(str(machine))) == performance_cores(sorted(usable), machine)


def test_a_kernel_that_tells_nothing(tmp_path: Path) -> None:
    assert performance_cores([3, 1], tmp_path) == (1, 3)
    assert performance_cores([], tmp_path) == ()


def test_threads_are_as_many_as_fast_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "performance_cores", lambda cpus: (0, 2, 4))
    for quota, expected in ((None, 3), (2.5, 2), (8.0, 3)):
        monkeypatch.setattr(host, "cgroup_quota_cores", lambda quota=quota: quota)
        assert host.usable_threads() == expected
