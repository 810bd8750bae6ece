"""Here measuring itself is tested, in its own time."""

import pytest


@pytest.fixture(autouse=True)
def impatient_unless_alone() -> None:
    """Only where a test asks for `impatient`."""
