"""How threads wait: asleep in trainings, as a user's program would in measurements."""

import os

import pytest

from nas import machine

POLICY = "OMP_WAIT_POLICY"


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POLICY, raising=False)
    monkeypatch.setattr(machine, "_set_here", [])


def test_threads_sleep_here_and_in_processes_that_train_alone() -> None:
    machine.threads_that_sleep()
    assert os.environ[POLICY] == "PASSIVE"
    assert machine.environment(threads_sleep=True)[POLICY] == "PASSIVE"
    assert POLICY not in machine.environment(threads_sleep=False)


def test_processes_that_train_sleep_whatever_this_one_does() -> None:
    assert machine.environment(threads_sleep=True)[POLICY] == "PASSIVE"
    assert POLICY not in os.environ


def test_a_users_own_setting_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POLICY, "ACTIVE")
    machine.threads_that_sleep()
    assert os.environ[POLICY] == "ACTIVE"
    for sleep in (True, False):
        assert machine.environment(threads_sleep=sleep)[POLICY] == "ACTIVE"
