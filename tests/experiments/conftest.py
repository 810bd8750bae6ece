"""Experiments are tried, not believed: a latency is measured with few calls."""

import pytest

from tests.nas.brief import hurry


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `tests.nas`."""
    hurry(monkeypatch)
