"""The space of a search that names none."""

from pathlib import Path

import pytest

from nas.controller.config import SearchConfig
from nas.controller.usual_space import usual_space
from nas.limits import Limits
from tests.nas.fake_device import fake_profile, save_fake_profile


@pytest.mark.parametrize(
    ("target", "space"), [("knows", "compact"), ("here", "compact"), ("elsewhere", "mixed"), ("nowhere", "compact")]
)
def test_a_profile_that_lacks_blocks_decides_where_nothing_can_be_measured(
    target: str, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, host, spaces in (
        ("knows", False, ("mixed", "compact")), ("here", True, ("mixed",)), ("elsewhere", False, ("mixed",)),
    ):  # fmt: skip
        save_fake_profile(tmp_path / "cache", fake_profile(name, host=host, spaces=spaces))
    assert usual_space("classification", target) == space
    assert usual_space("detection", target) == "detect"
    limits = Limits.of(latency_ms=5.0)
    assert SearchConfig(limits=limits, data="digits", target=target).space == space
    assert SearchConfig(limits=limits, data="digits", target=target, space="dense").space == "dense"
