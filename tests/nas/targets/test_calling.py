"""A profile that does not know how a network is called gets timings of such calls, once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.calls import interval_ms_of
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import Measurement
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.targets import calling
from nas.targets.calling import LEAST, NETWORKS, PROFILED_NETWORKS, knows_calls, with_calls, with_patterns, with_pauses
from nas.targets.latency import Correction, LatencyModel
from nas.targets.profile import DeviceProfile
from search_spaces import Architecture, load_search_space
from tests.nas.fake_device import FP32, INT8, fake_measurements, fake_profile, true_latency_ms

MIXED = load_search_space("mixed")
CAMERA_MS = 50.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[Deployment, ...]]]:
    """Calls of `measure_networks`: networks and deployments."""
    found: list[tuple[int, tuple[Deployment, ...]]] = []

    def measure(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        found.append((len(archs), tuple(deployments)))
        slower = fake_measurements(archs, deployments)  # at an hour in which everything takes twice as long
        return [[replace(m, p50_ms=2 * m.p50_ms) for m in row] for row in slower]

    monkeypatch.setattr(calling, "measure_networks", measure)
    return found


def made(path: Path, profile: DeviceProfile, interval_ms: float = CAMERA_MS) -> DeviceProfile:
    return with_calls(
        profile, (FP32, INT8), interval_ms, this_host(), path=path, progress=SilentProgress(), networks=NETWORKS
    )


def test_some_networks_are_timed_in_both_patterns_once(tmp_path: Path, asked: list[Any]) -> None:
    path, profile = tmp_path / "profile.json", fake_profile(networks=60)
    assert not knows_calls(profile, (FP32, INT8), CAMERA_MS)
    found = made(path, profile)
    assert knows_calls(found, (FP32, INT8), CAMERA_MS)
    assert sum(count for count, _ in asked) == NETWORKS
    assert asked[0][1] == (FP32, INT8, FP32.called(CAMERA_MS), INT8.called(CAMERA_MS))
    assert found.networks == profile.networks
    for kept, was in zip(found.tables, profile.tables, strict=True):  # what is known of continuous calls stays
        assert kept.deployment == was.deployment
        assert np.allclose(kept.column("latency_ms"), was.column("latency_ms"), rtol=1e-4)
    times = len(asked)
    assert made(path, profile) == DeviceProfile.load(path)
    assert made(path, found) is found
    assert len(asked) == times, "what is saved is read"
    both = made(path, profile, interval_ms=200.0)
    assert knows_calls(both, (FP32, INT8), CAMERA_MS)
    assert knows_calls(both, (FP32, INT8), 200.0)
    path.write_text("{")
    made(path, profile)
    assert len(asked) == 3 * times


def test_a_short_budget_times_few_networks_and_a_longer_one_goes_on(tmp_path: Path, asked: list[Any]) -> None:
    path, profile = tmp_path / "profile.json", fake_profile(networks=60)

    def timed(budget_s: float, known: DeviceProfile = profile) -> tuple[int, list[int]]:
        """Networks that were timed now, and positions of all that are known, from the fastest network on."""
        asked.clear()
        found = with_calls(
            known, (FP32, INT8), CAMERA_MS, this_host(), path=path, progress=SilentProgress(), budget_s=budget_s,
            networks=NETWORKS,
        )  # fmt: skip
        table, continuous = found.table(FP32.called(CAMERA_MS)), found.table(FP32)
        assert table is not None
        assert continuous is not None
        order = np.argsort(continuous.column("latency_ms"), kind="stable")
        places = np.flatnonzero(np.isfinite(table.column("latency_ms")[order])).tolist()
        return sum(count for count, _ in asked), places

    count, places = timed(0.0)
    assert count == LEAST
    assert (places[0], places[-1]) == (0, 59), "the fastest and the slowest"
    assert 20 < places[2] < 40
    assert timed(5.0) == (0, places), "what is known suffices"
    count, more = timed(3600.0)
    assert count == NETWORKS - LEAST
    assert set(places) < set(more)
    assert timed(3600.0) == (0, more)
    profiled = with_patterns(profile, ("20/s",), tmp_path / "own.json", SilentProgress())
    assert timed(3600.0, profiled)[0] == 0, "a profile that knows more itself is not measured again"


def test_networks_that_cannot_be_called_so_often_are_left_out(tmp_path: Path, asked: list[Any]) -> None:
    profile = fake_profile(networks=60)
    continuous_ms = np.max([table.column("latency_ms") for table in profile.tables], axis=0)
    interval_ms = 2 * float(np.median(continuous_ms))
    table = made(tmp_path / "profile.json", profile, interval_ms).table(INT8.called(interval_ms))
    assert table is not None
    timed = np.isfinite(table.column("latency_ms"))
    assert timed.sum() == sum(count for count, _ in asked) == NETWORKS
    assert continuous_ms[timed].max() <= interval_ms / 2
    interval_ms = float(continuous_ms.min())
    few = made(tmp_path / "few.json", profile, interval_ms).table(INT8.called(interval_ms))
    assert few is not None, "where hardly any keeps the rate, all are tried"
    assert few.measured == NETWORKS


def test_small_networks_become_part_of_the_profile_as_they_would_have_been_then(
    tmp_path: Path, asked: list[Any]
) -> None:
    """Everything takes twice as long now; what is learnt of them is true of the hour in which the profile was made."""
    path, profile = tmp_path / "profile.json", fake_profile(networks=60)
    small = [MIXED.architecture(row) for row in MIXED.sample(3, np.random.default_rng(99))]

    def timed(budget_s: float, base: DeviceProfile = profile) -> DeviceProfile:
        asked.clear()
        return with_calls(
            base, (FP32, INT8), CAMERA_MS, this_host(), path=path, progress=SilentProgress(), budget_s=budget_s,
            networks=NETWORKS, small=small,
        )  # fmt: skip

    found = timed(0.0)
    assert sum(count for count, _ in asked) == LEAST
    assert found.networks == (*profile.networks, *small)
    costs = MIXED.costs(MIXED.choices(small), (10,))
    truth = true_latency_ms(costs, 1.0)
    tables = [found.table(d) for d in (FP32, FP32.called(CAMERA_MS))]
    continuous_ms, spaced_ms = (t.column("latency_ms")[60:] for t in tables if t is not None)
    np.testing.assert_allclose(continuous_ms, truth, rtol=1e-3)
    expected = 0.3 + 1.2 * truth + 1e-8 * costs["params"]
    np.testing.assert_allclose(spaced_ms, expected, rtol=1e-3)
    whole = timed(3600.0)
    assert sum(count for count, _ in asked) == NETWORKS - LEAST
    assert whole.networks == found.networks
    assert timed(3600.0) == DeviceProfile.load(path)
    assert asked == []
    assert timed(0.0, whole) == whole


def test_small_networks_are_timed_in_a_short_budget_too(tmp_path: Path, asked: list[Any]) -> None:
    """An earlier search asked for a limit that larger ones tell of."""
    path = tmp_path / "profile.json"
    known = made(path, fake_profile(networks=60))
    small = [MIXED.architecture(row) for row in MIXED.sample(6, np.random.default_rng(99))]
    for number, added in enumerate((small[:3], small[3:]), 1):
        asked.clear()
        found = with_calls(
            known, (FP32, INT8), CAMERA_MS, this_host(), path=path, progress=SilentProgress(), networks=NETWORKS,
            budget_s=0.0, small=added,
        )  # fmt: skip
        assert [count for count, _ in asked] == [LEAST], "with two that were known"
        assert len(found.networks) == 60 + 3 * number
        for deployment in (INT8, FP32.called(CAMERA_MS)):
            table = found.table(deployment)
            assert table is not None
            assert np.isfinite(table.column("latency_ms")[60:]).all()
        known = found


def test_calls_with_pauses_are_predicted_of_networks_that_were_never_timed(tmp_path: Path, asked: list[Any]) -> None:
    profile = fake_profile(networks=80, spaces=("mixed",))
    correction = {FP32: Correction(factor=1.5)}
    continuous = LatencyModel(profile, [FP32], correction)
    model = continuous.called(made(tmp_path / "profile.json", profile), CAMERA_MS)
    (spaced,) = model.deployments
    assert (spaced, continuous.deployments) == (FP32.called(CAMERA_MS), (FP32,))
    choices = MIXED.sample(64, np.random.default_rng(5))
    costs = MIXED.costs(choices, (10,))
    truth = 0.3 + 1.2 * 1.5 * true_latency_ms(costs, 1.0) + 1e-8 * costs["params"]
    usual, found = (m.predict(MIXED, choices, (10,)) for m in (continuous, model))
    # That everything was slow while it was timed says nothing of the pauses, but for their constant.
    assert np.median(np.abs(found[spaced].mean / truth - 1)) < 0.1
    assert (found[spaced].mean > usual[FP32].mean).all()
    assert (found[spaced].std > usual[FP32].std).all()
    assert asked


def test_a_profile_is_continued_and_told_apart(tmp_path: Path, asked: list[Any]) -> None:
    path = tmp_path / "profile.json"
    profile = with_patterns(fake_profile(networks=40), ("20/s", "continuous", "idle"), path, SilentProgress())
    assert [t.deployment.calls for t in profile.spaced] == ["20/s", "20/s", "idle", "idle"]
    assert {t.measured for t in profile.spaced} == {PROFILED_NETWORKS}
    for read, made_here in zip(DeviceProfile.load(path).spaced, profile.spaced, strict=True):
        assert read.deployment == made_here.deployment
        assert np.allclose(read.column("latency_ms"), made_here.column("latency_ms"), rtol=1e-4, equal_nan=True)
    assert profile.without_spaces({"mobile"}).spaced[0].measured < PROFILED_NETWORKS


def test_patterns_share_what_time_is_left(tmp_path: Path, asked: list[Any]) -> None:
    """However little that is, as many networks are timed as a model of a pattern needs."""
    path = tmp_path / "profile.json"
    profile = with_patterns(fake_profile(networks=40), ("20/s", "idle", "20/s"), path, SilentProgress(), budget_s=0.0)
    assert {t.measured for t in profile.spaced} == {LEAST}
    assert with_pauses(("20/s", "continuous", "idle", "20/s")) == [CAMERA_MS, interval_ms_of("idle")]


def test_patterns_that_nothing_keeps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        rows = fake_measurements(archs, deployments)
        return [[replace(m, failed="too slow") if m.request.deployment.interval_ms else m for m in row] for row in rows]

    monkeypatch.setattr(calling, "measure_networks", too_slow)
    path = tmp_path / "profile.json"
    with pytest.raises(UserError, match="only 0 of 12 networks could be called 20/s with onnxruntime-fp32"):
        made(path, fake_profile())
    assert not path.exists()


def test_a_model_asks_for_the_pattern_it_lacks() -> None:
    with pytest.raises(UserError, match="0 networks for onnxruntime-fp32 at 20/s, too few") as error:
        LatencyModel(fake_profile(), [FP32.called(CAMERA_MS)])
    assert "nas profile fake --calls 20/s" in error.value.hint
