"""The target as a search uses it: known, re-calibrated by probes, refused, or measured afresh."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Budget
from nas.controller.prediction import calls, target_model
from nas.controller.prediction.calls import prepare_target
from nas.controller.prediction.probes import FileModel
from nas.controller.prediction.target_model import (
    PROBES,
    QUICK_LEAST,
    recalibrated,
    speed_notes,
)
from nas.controller.prediction.target_record import check_target, read_target, write_target
from nas.deployment import Deployment
from nas.errors import UserError
from nas.limits import Limits
from nas.measure.host import fingerprint, usable_threads
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.targets import calling, registry
from nas.targets.latency import Correction, LatencyModel
from nas.targets.preparing import networks_to_measure
from nas.targets.priors import prior_profiles
from nas.targets.profile import DeviceProfile, saved_profile
from nas.targets.profiling import measure_networks
from nas.targets.registry import BUNDLED, bundled_path
from predictors.block_latency import MIN_NETWORKS
from search_spaces import Architecture, load_search_space, resolve_space
from tests.nas.fake_device import FP32, INT8, fake_measurements, fake_profile, save_fake_profile, true_latency_ms

ORT = Deployment("onnxruntime", "fp32", usable_threads())


def measured(deployment: Deployment, p50_ms: float) -> Measurement:
    """A measurement of one session, NaN for a failed one."""
    request = MeasureRequest(Path("network.onnx"), deployment)
    timing = SessionTiming(
        p50_ms=p50_ms, p90_ms=p50_ms, p99_ms=p50_ms, calls=9, reference_p50_ms=1.5, load_ms=1.0, memory_bytes=1000,
        cpu_share=1.0, disturbance=None,
    )  # fmt: skip
    failed = math.isnan(p50_ms)
    return summarise(request, [] if failed else [timing], "it crashed" if failed else None, 1.5)


def slower_device(
    archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any
) -> list[list[Measurement]]:
    """The fake device at two thirds of its speed, where every third network fails."""
    rows = []
    for i, arch in enumerate(archs):
        space = load_search_space(arch.space)
        costs = space.costs(space.choices([arch]), (10,))
        times = [1.5 * float(true_latency_ms(costs, 2.0 if d.precision == "int8" else 1.0)[0]) for d in deployments]
        rows.append([measured(d, math.nan if i % 3 == 2 else ms) for d, ms in zip(deployments, times, strict=True)])
    return rows


def test_probes_and_a_prior_make_a_model_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_model, "measure_networks", slower_device)
    model = recalibrated(fake_profile(), [FP32, INT8], 0, this_host())
    assert model.profile.fingerprint == fingerprint()
    space = load_search_space("mixed")
    choices = space.sample(100, np.random.default_rng(2))
    for deployment, speed in ((FP32, 1.0), (INT8, 2.0)):
        truth = 1.5 * true_latency_ms(space.costs(choices, (10,)), speed)
        assert np.median(np.abs(model.predict(space, choices, (10,))[deployment].mean / truth - 1)) < 0.1


def test_probes_that_mostly_fail_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        return [[measured(d, math.nan) for d in deployments] for _ in archs]

    monkeypatch.setattr(target_model, "measure_networks", broken)
    with pytest.raises(UserError, match="could not be measured on this host"):
        recalibrated(fake_profile(), [FP32], 0, this_host())


def own_profile(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, onnxruntime: str | None = None, slowness: float = 1.0,
    networks: int = 40, batch: int = 1,
) -> DeviceProfile:  # fmt: skip
    """A saved profile of this host but for the version of a runtime; its latencies are the fake device's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr("nas.targets.registry.BUNDLED", {})  # one of them may be of a host like this one
    made = fake_profile("local", networks, batch=batch)
    here = fingerprint()
    packages = tuple((name, onnxruntime or v if name == "onnxruntime" else v) for name, v in here.packages)
    tables = tuple(
        replace(
            t,
            deployment=replace(t.deployment, threads=ORT.threads),
            timings=tuple(replace(timing, latency_ms=slowness * timing.latency_ms) for timing in t.timings),
        )
        for t in made.tables
    )
    made = replace(made, fingerprint=replace(here, packages=packages), tables=tables)
    made.save(saved_profile("local"))
    return made


def config(**options: Any) -> SearchConfig:
    return SearchConfig(limits=Limits.of(latency_ms=10), runtimes=("onnxruntime",), precisions=("fp32",), **options)


def test_a_strict_search_refuses_a_profile_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_profile(tmp_path, monkeypatch, onnxruntime="0.1.0")
    with pytest.raises(UserError, match=r"onnxruntime: .* here, 0\.1 there"):
        prepare_target(config(strict=True), Budget(60), SilentProgress())


@pytest.mark.usefixtures("impatient")
def test_more_threads_than_this_machine_runs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match="are more than the"):
        prepare_target(config(threads=usable_threads() + 1), Budget(60), SilentProgress())


def test_an_equal_host_needs_no_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_profile(tmp_path, monkeypatch)
    target = prepare_target(config(strict=True), Budget(60), SilentProgress())
    assert target.site is not None
    assert target.site.here
    correction = target.model.corrections[ORT]
    assert 0.01 < correction.factor < 100, "the fake device's reference network takes 1 ms, whatever it takes here"
    assert target.notes == tuple(speed_notes([correction], this_host()))


@pytest.mark.usefixtures("impatient")
def test_calls_have_as_many_images_as_in_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_profile(tmp_path, monkeypatch, batch=8)
    asked = replace(config(), limits=Limits.of(throughput=100.0))
    target = prepare_target(asked, Budget(60), SilentProgress())
    assert target.model.deployments == (replace(ORT, batch=8),)
    assert any("a call has 8 images" in note for note in target.notes)
    path = tmp_path / "target.json"
    write_target(path, target, FileModel())
    again = read_target(path, asked)
    assert again is not None
    assert again[0].model.deployments == target.model.deployments
    own_profile(tmp_path, monkeypatch)
    assert read_target(path, asked) is None, "nothing is known of calls of eight images now"


@pytest.mark.usefixtures("impatient")
def test_a_continued_search_predicts_as_before_from_few_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_profile(tmp_path, monkeypatch, networks=MIN_NETWORKS - 1)
    monkeypatch.setattr(registry, "bundled_profiles", lambda: [fake_profile("known", 64, host=False)])
    target = prepare_target(config(), Budget(60), SilentProgress())
    path = tmp_path / "target.json"
    write_target(path, target, FileModel())
    again = read_target(path, config())
    assert again is not None
    space = load_search_space("mixed")
    choices = space.sample(9, np.random.default_rng(0))
    before, after = (found.model.predict(space, choices, (10,))[ORT] for found in (target, again[0]))
    assert np.array_equal(before.mean, after.mean)


def test_networks_of_another_task_are_added_to_the_own_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classification search on a machine that only detection searches know, and the other way round."""
    made = own_profile(tmp_path, monkeypatch)
    asked: list[list[str]] = []

    def quick(*arguments: Any) -> DeviceProfile:
        asked.append([space.name for space in arguments[-1]])
        return made

    monkeypatch.setattr(target_model, "make_quick_profile", quick)
    target = prepare_target(config(task="detection", space="detect", data="folder"), Budget(60), SilentProgress())
    assert asked == [["detect"]]
    assert any("quick profile" in note for note in target.notes)


@pytest.mark.usefixtures("impatient")
def test_only_devices_that_know_the_blocks_of_the_space_help_a_quick_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own few networks may be without a kind of block that the searched ones have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old = fake_profile("old", 64, host=False, spaces=("mixed", "mobile"))
    monkeypatch.setattr(registry, "BUNDLED", {})  # one of them may be of a host like this one
    monkeypatch.setattr(registry, "bundled_profiles", lambda: [old, fake_profile("new", 64, host=False)])
    few = fake_profile("local", QUICK_LEAST, spaces=("mixed",), threads=ORT.threads)
    monkeypatch.setattr(target_model, "make_quick_profile", lambda *_: few)
    target = prepare_target(config(space="compact"), Budget(60), SilentProgress())
    space = load_search_space("compact")
    found = target.model.predict(space, space.sample(9, np.random.default_rng(0)), (10,))[ORT]
    assert (found.mean > 0).all()
    assert any("new served as prior" in note for note in target.notes)


@pytest.mark.usefixtures("impatient")
def test_a_quick_profile_does_not_take_the_place_of_a_fine_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search with another number of threads than a profile that took a quarter of an hour."""
    fine = own_profile(tmp_path, monkeypatch)
    more = ORT.threads + 1
    known = replace(fine, tables=tuple(replace(t, deployment=replace(t.deployment, threads=more)) for t in fine.tables))
    known.save(saved_profile("local"))
    content = saved_profile("local").read_bytes()

    def quick(name: str, deployments: Sequence[Deployment], path: Path, *_: Any) -> DeviceProfile:
        made = replace(fine, description="quick", tables=tuple(t for t in fine.tables if t.deployment in deployments))
        made.save(path)
        return made

    monkeypatch.setattr(target_model, "make_quick_profile", quick)
    target = prepare_target(config(), Budget(60), SilentProgress())
    assert any("quick profile" in note for note in target.notes)
    assert saved_profile("local").read_bytes() == content
    again = prepare_target(config(), Budget(60), SilentProgress())
    assert not any("quick profile" in note for note in again.notes), "it is kept beside the fine one"
    assert again.model.profile.description == "quick"


def test_bundled_profiles_are_a_prior_for_few_networks_of_another_device() -> None:
    few = fake_profile("few", networks=12, host=False, spaces=("mixed", "dense"))
    assert [p.name for p in prior_profiles(few)] == list(BUNDLED)
    assert [p.name for p in prior_profiles(few, load_search_space("compact"))] == ["epyc-zen4"], "knows its blocks"
    assert prior_profiles(fake_profile("many", networks=64, host=False)) == []
    own, *others = BUNDLED
    same = replace(few, fingerprint=DeviceProfile.load(bundled_path(own)).fingerprint)
    assert [p.name for p in prior_profiles(same)] == others, "its own host is no other device"


@pytest.mark.parametrize(("host", "least"), [(True, MIN_NETWORKS), (False, QUICK_LEAST)])
def test_a_quick_profile_is_that_quick_only_with_a_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: bool, least: int
) -> None:
    """A bundled profile of this very host, say with other threads, is no prior and must not count as one."""
    asked: list[int] = []

    def make(*_: Any, **options: Any) -> DeviceProfile:
        asked.append(options["least"])
        return fake_profile()

    monkeypatch.setattr(registry, "bundled_profiles", lambda: [fake_profile("known", host=host)])
    monkeypatch.setattr(target_model, "make_profile", make)
    target_model.make_quick_profile(
        "local", [ORT], tmp_path / "p.json", 1.0, 0, SilentProgress(), [resolve_space("mixed")]
    )
    assert asked == [least]


@pytest.mark.parametrize(
    ("factors", "words"), [((1.0, 1.02), None), ((1.2, 1.2, 1.3), "20% slower"), ((0.5, 0.5), "50% faster"), ((), None)]
)
def test_a_speed_that_differs_is_told(factors: tuple[float, ...], words: str | None) -> None:
    notes = speed_notes((Correction(f) for f in factors), this_host())
    assert [words in note for note in notes if words] == ([True] if words else [])


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.usefixtures("impatient")
def test_a_profile_that_differs_is_corrected_by_real_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # So slow a device that no noise of this host's measurements can hide what the probes are for.
    slow = own_profile(tmp_path, monkeypatch, onnxruntime="0.1.0", slowness=20.0)
    target = prepare_target(config(), Budget(60), SilentProgress())
    assert any("onnxruntime" in note for note in target.notes)
    table = target.model.profile.table(ORT)
    assert table is not None
    assert table.measured >= PROBES // 2
    archs = networks_to_measure([resolve_space("mixed")], 4, 99, None)
    truth = np.array([row[0].p50_ms for row in measure_networks(archs, [ORT], sessions=1, seconds_per_model=0.1)])
    space = load_search_space("mixed")

    def error(model: LatencyModel) -> float:
        return float(np.abs(np.log(model.predict(space, space.choices(archs), (10,))[ORT].mean / truth)).mean())

    assert error(target.model) < error(LatencyModel(slow, [ORT])), "the probes helped"


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_an_unknown_host_is_profiled_within_a_share_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nas.targets.registry.BUNDLED", {})
    target = prepare_target(config(), Budget(16), SilentProgress())
    assert any("quick profile" in note for note in target.notes)
    assert saved_profile("local").exists(), "later searches know this host"
    again = prepare_target(config(), Budget(16), SilentProgress())
    assert not any("quick profile" in note for note in again.notes)


def test_a_device_of_a_cluster_is_measured_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nas.targets.registry.BUNDLED", {})  # one of them may be of a host like this one
    save_fake_profile(tmp_path, fake_profile("edge", host=False))
    device = replace(this_host(), name="device 'edge' of the Ray cluster", here=False)
    edge = replace(config(), target="edge")
    known = {"usable_threads": FP32.threads, "_profile_there": fake_profile("edge")}

    asked: list[Any] = []

    def answered(function: Any, *arguments: Any) -> Any:
        asked.append(function.__name__)
        return known.get(function.__name__) or function(*arguments)

    found = prepare_target(edge, Budget(60), SilentProgress(), replace(device, run=answered))
    assert asked == ["usable_threads", "deployments_here", "_profile_there"]
    assert found.site is not None
    assert found.site.name == device.name
    assert found.model.profile.fingerprint == device.fingerprint, "the saved one was of a host unlike this one"
    assert any("device 'edge'" in note for note in found.notes)

    path = tmp_path / "target.json"
    write_target(path, found, FileModel())
    again = read_target(path, edge, device)
    assert again is not None
    assert again[0].site == device
    changed = replace(device, fingerprint=replace(device.fingerprint, cpu_model="another processor"))
    assert read_target(path, edge, changed) is None, "it has to be learnt again"
    save_fake_profile(tmp_path, fake_profile("edge", host=False))
    with pytest.raises(UserError, match="which is not at hand now"):
        check_target(path, edge, None)
    saved_profile("edge").unlink()
    with pytest.raises(UserError, match="which is not at hand now"):
        check_target(path, edge, None)
    with pytest.raises(UserError, match="no machine of the Ray cluster is one") as error:
        check_target(tmp_path / "new.json", replace(edge, ray="auto"), None)
    assert '"device:edge": 1' in str(error.value.hint)


def test_a_search_for_calls_with_pauses_goes_on_with_what_it_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_fake_profile(tmp_path, fake_profile("fake"))
    asked: list[int] = []

    def timed(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        asked.append(len(archs))
        return fake_measurements(archs, deployments)

    monkeypatch.setattr(calling, "measure_networks", timed)
    monkeypatch.setattr(target_model, "speed_corrections", lambda *_: {FP32: Correction(1.25)})
    spaced = replace(config(), target="fake", threads=FP32.threads, calls="20/s")
    found = prepare_target(spaced, Budget(60), SilentProgress())
    assert [d.calls for d in found.model.deployments] == ["20/s"]
    assert any("calls at 20/s were timed on this host" in note for note in found.notes)
    path, times = tmp_path / "target.json", len(asked)
    write_target(path, found, FileModel())
    # Another search asks for so small networks that the profile gets some in the meantime.
    other = prepare_target(replace(spaced, limits=Limits.of(latency_ms=0.5)), Budget(60), SilentProgress())
    assert len(other.model.profile.networks) > len(found.model.profile.networks)
    assert len(asked) > times
    times = len(asked)
    again = read_target(path, spaced)
    assert again is not None
    assert again[0].model.corrections == found.model.corrections == {FP32: Correction(1.25)}
    space = load_search_space("mixed")
    choices = space.sample(16, np.random.default_rng(1))
    first, second = (m.predict(space, choices, (10,)) for m in (found.model, again[0].model))
    assert all(np.array_equal(first[d].mean, second[d].mean) for d in found.model.deployments)
    assert len(asked) == times


def test_a_short_search_for_calls_with_pauses_considers_fewer_deployments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_fake_profile(tmp_path, fake_profile("fake"))
    asked: list[set[str]] = []

    def timed(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        asked.append({d.name for d in deployments})
        return fake_measurements(archs, deployments)

    monkeypatch.setattr(calling, "measure_networks", timed)
    monkeypatch.setattr(target_model, "speed_corrections", lambda *_: {})
    monkeypatch.setattr(calls, "affordable_deployments", lambda budget_s: 1)
    monkeypatch.setattr(calls, "promising", lambda model, *_: model.deployments[1:])
    spaced = replace(config(), precisions=("fp32", "int8"), target="fake", threads=FP32.threads, calls="20/s")
    found = prepare_target(spaced, Budget(60), SilentProgress())
    assert asked[-1] == {FP32.name, INT8.name}, "which of them are fast is not known before"
    assert found.model.deployments == (INT8.called(50.0),)
    told = f"{INT8.name} alone were considered, as the most promising of 2"
    assert any(note.startswith(told) for note in found.notes)
    times = len(asked)
    smaller = replace(spaced, limits=Limits.of(latency_ms=0.5))
    again = prepare_target(smaller, Budget(60), SilentProgress())
    assert asked[times:] == [{INT8.name}]
    assert again.model.deployments == found.model.deployments
    path = tmp_path / "target.json"
    write_target(path, again, FileModel())
    known = read_target(path, smaller)
    assert known is not None
    assert known[0].model.deployments == found.model.deployments
