"""How threads wait: asleep in trainings on a busy machine, as a user's program would in measurements."""

import os

import pytest

from nas import machine

POLICY = "OMP_WAIT_POLICY"


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (POLICY, machine._SET_HERE):
        monkeypatch.setenv(name, "")  # so that what the tests set is undone
        monkeypatch.delenv(name)


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
