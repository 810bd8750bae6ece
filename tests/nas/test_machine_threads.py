"""What is set for trainings alone: how threads wait on a busy machine, and that free memory is kept.

In measurements both are as in a user's program.
"""

import os
import subprocess
import sys

import pytest

from nas import machine

POLICY, MALLOC = "OMP_WAIT_POLICY", "GLIBC_TUNABLES"


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (POLICY, machine._SET_HERE, MALLOC, machine._KEPT_HERE):
        monkeypatch.setenv(name, "")  # so that what the tests set is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr(machine, "_KEPT_FROM", 0)  # however small the machine


def test_where_memory_is_short_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_KEPT_FROM", 2**60)
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("began anew"))
    machine.restart_with_kept_memory()
    assert MALLOC not in os.environ
    assert MALLOC not in machine.environment(trains=True)


def test_by_default_nothing_changes() -> None:
    assert POLICY not in machine.environment(trains=True)
    assert machine.environment(trains=False) == dict(os.environ)


def test_threads_sleep_here_and_in_processes_that_train_alone() -> None:
    machine.threads_that_sleep()
    assert os.environ[POLICY] == "PASSIVE"
    assert machine.environment(trains=True)[POLICY] == "PASSIVE"
    assert POLICY not in machine.environment(trains=False)


def test_a_users_own_setting_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POLICY, "ACTIVE")
    machine.threads_that_sleep()
    for trains in (True, False):
        assert machine.environment(trains=trains)[POLICY] == "ACTIVE"


def test_processes_that_train_keep_their_memory_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in machine.environment(trains=True).items():
        monkeypatch.setenv(name, value)
    assert "mmap_max=0" in os.environ[MALLOC]
    assert machine.environment(trains=True) == dict(os.environ)
    assert machine.environment(trains=False).keys() == os.environ.keys() - {MALLOC, machine._KEPT_HERE}


def test_a_users_own_allocator_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MALLOC, "glibc.malloc.arena_max=2")
    for trains in (True, False):
        assert machine.environment(trains=trains)[MALLOC] == "glibc.malloc.arena_max=2"


@pytest.mark.skipif(not machine._has_glibc(), reason="the C library is not glibc")
def test_a_process_begins_anew_once_and_takes_freed_memory_again() -> None:
    program = """
import os, resource, sys
from nas.machine import restart_with_kept_memory
print("begun", sys.argv[1:], flush=True)
restart_with_kept_memory()
def faults_of_a_block():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytes(64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults_of_a_block()
print(os.environ["GLIBC_TUNABLES"].split(":")[1], min(faults_of_a_block() for _ in range(3)))
"""
    done = subprocess.run([sys.executable, "-c", program, "a b", "c"], check=True, capture_output=True, text=True)
    begun, again, (setting, faults) = (*done.stdout.splitlines()[:2], done.stdout.splitlines()[2].split())
    assert begun == again == "begun ['a b', 'c']"
    assert setting == "glibc.malloc.mmap_max=0"
    assert int(faults) < 100  # of 16,384 small pages
