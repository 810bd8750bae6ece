"""What tests of the engine share."""

import pytest

from nas.measure import protocol


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured again: a busy machine must not make tests slow that can do with any latency."""
    monkeypatch.setattr(protocol, "REPEATS", 0)
