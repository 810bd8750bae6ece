"""A profile that lacks blocks of a space gets networks of it, once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import Measurement
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.targets import completing
from nas.targets.completing import NETWORKS, completed, missing_kinds
from nas.targets.latency import LatencyModel
from nas.targets.profile import DeviceProfile
from search_spaces import Architecture, load_search_space
from tests.nas.fake_device import FP32, INT8, fake_measurements, fake_profile, true_latency_ms

COMPACT = load_search_space("compact")


def made(path: Path, profile: DeviceProfile, deployments: Sequence[Deployment] = (FP32, INT8)) -> DeviceProfile:
    return completed(profile, deployments, COMPACT, this_host(), path=path, progress=SilentProgress(), seed=1)


def test_what_a_profile_lacks_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = fake_profile(spaces=("mixed",), networks=60)
    assert missing_kinds(profile, COMPACT) == {"pooled"}
    assert not missing_kinds(profile, load_search_space("dense"))
    asked: list[int] = []

    def measure(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        asked.append(len(archs))
        return fake_measurements(archs, deployments)

    monkeypatch.setattr(completing, "measure_networks", measure)
    found = made(tmp_path / "profile.json", profile)
    assert sum(asked) == NETWORKS
    assert found.networks[: len(profile.networks)] == profile.networks
    assert not missing_kinds(found, COMPACT)
    choices = COMPACT.sample(64, np.random.default_rng(3))
    truth = true_latency_ms(COMPACT.costs(choices, (10,)), 1.0)
    predicted = LatencyModel(found, [FP32]).predict(COMPACT, choices, (10,))[FP32].mean
    assert np.median(np.abs(predicted / truth - 1)) < 0.15
    assert made(tmp_path / "profile.json", profile).networks == found.networks, "what is saved is read"
    assert sum(asked) == NETWORKS
    other = fake_profile(spaces=("dense",), networks=30)
    assert made(tmp_path / "profile.json", other).networks[:30] == other.networks, "of another profile: measured anew"
    (tmp_path / "profile.json").write_text("{")
    made(tmp_path / "profile.json", profile)
    assert sum(asked) == 3 * NETWORKS


def test_deployments_that_cannot_be_measured_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        rows = fake_measurements(archs, deployments)
        for row in rows:
            object.__setattr__(row[-1], "failed", "it crashed")
        return rows

    monkeypatch.setattr(completing, "measure_networks", broken)
    with pytest.raises(UserError, match="could not be measured with onnxruntime-int8"):
        made(tmp_path / "profile.json", fake_profile(spaces=("mixed",)))
    assert not (tmp_path / "profile.json").exists()
