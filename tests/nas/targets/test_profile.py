"""Profiles as files, and the latency model made from one."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.cli.main import run
from nas.deployment import PIPELINE, Deployment
from nas.errors import UnknownNameError, UserError
from nas.targets.fitting import slots_of, usual_latency_ms
from nas.targets.held_out import held_out_error
from nas.targets.latency import Correction, LatencyModel, PriorPredictors
from nas.targets.profile import FAILED, DeploymentTable, DeviceProfile, NetworkTiming, _digest
from nas.targets.registry import (
    BUNDLED,
    LOCAL,
    BundledProfile,
    bundled_path,
    list_targets,
    load_target,
    material_differences,
)
from predictors.block_latency import BlockLatencyPredictor
from search_spaces import load_search_space
from tests.nas.fake_device import FP32, INT8, fake_profile, save_fake_profile, true_latency_ms


def with_table(profile: DeviceProfile, table: DeploymentTable) -> DeviceProfile:
    """The profile with one deployment's table replaced."""
    others = tuple(t for t in profile.tables if t.deployment != table.deployment)
    return replace(profile, tables=(*others, table))


@pytest.fixture(scope="module")
def profile() -> DeviceProfile:
    return fake_profile()


@pytest.fixture(scope="module")
def model(profile: DeviceProfile) -> LatencyModel:
    return LatencyModel(profile)


_SEARCH = """
import sys
from pathlib import Path
from nas.targets.profile import DeviceProfile, set_aside

known, shared = DeviceProfile.load(Path(sys.argv[1])), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60):
    known.save(shared)
    assert DeviceProfile.load(shared).networks == known.networks
    set_aside(shared)
assert DeviceProfile.load(shared.with_name(shared.name + ".old")).networks == known.networks
"""


def test_two_first_searches_at_once_write_and_read_one_profile(profile: DeviceProfile, tmp_path: Path) -> None:
    """Each saves it 60 times, as a search does after every few networks, and reads what the other may be writing."""
    profile.save(tmp_path / "measured.json")
    shared = tmp_path / "cache/profiles/local.json"  # its folder is missing too, as it is for a first search
    command = [sys.executable, "-c", _SEARCH, str(tmp_path / "measured.json"), str(shared)]
    pipe = subprocess.PIPE
    searches = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for search in searches:
        assert search.stdout is not None
        assert search.stdout.readline() == "ready\n"
    for search in searches:
        assert search.stdin is not None
        search.stdin.write("\n")
        search.stdin.flush()
    for search in searches:
        _, errors = search.communicate(timeout=120)
        assert search.returncode == 0, errors
    assert sorted(p.name for p in shared.parent.iterdir()) == ["local.json", "local.json.old"]


def test_round_trip(profile: DeviceProfile, tmp_path: Path) -> None:
    known = profile.tables[0]
    timed = replace(known.timings[1], block_ms=(0.1, math.nan, 0.2), energy_mj=3.5)
    failed = replace(known, timings=(FAILED, timed, *known.timings[2:]))
    path = tmp_path / "p.json"
    with_table(profile, failed).save(path)
    loaded = DeviceProfile.load(path)
    assert loaded.networks == profile.networks
    assert loaded.fingerprint == profile.fingerprint
    table = loaded.table(FP32)
    assert table is not None
    assert math.isnan(table.timings[0].latency_ms)
    assert table.timings[0].block_ms == ()
    assert table.timings[1].block_ms == pytest.approx((0.1, math.nan, 0.2), nan_ok=True)
    assert table.timings[1].energy_mj == 3.5
    assert table.timed_blocks == 2
    assert table.measured == len(profile.networks) - 1
    for name in ("latency_ms", "reference_ms", "spread_pct", "memory_bytes"):
        assert table.column(name)[1:] == pytest.approx(known.column(name)[1:], abs=1e-5)
    assert np.isnan(table.column("energy_mj")[2:]).all()


def test_networks_of_some_spaces_can_be_left_out(profile: DeviceProfile) -> None:
    kept = profile.without_spaces(["mixed", "dense", "compact"])
    mobile = [i for i, arch in enumerate(profile.networks) if arch.space == "mobile"]
    assert kept.networks == tuple(profile.networks[i] for i in mobile)
    for before, after in zip(profile.tables, kept.tables, strict=True):
        assert after.timings == tuple(before.timings[i] for i in mobile)


def test_an_altered_file_is_refused(profile: DeviceProfile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile.save(path)
    document = json.loads(path.read_text())
    document["tables"][0]["latency_ms"][0] /= 2
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="checksum"):
        DeviceProfile.load(path)
    path.write_text("{")
    with pytest.raises(UserError, match="not a profile"):
        DeviceProfile.load(path)
    with pytest.raises(UserError, match="no profile"):
        DeviceProfile.load(tmp_path / "absent.json")


def test_the_known_device_is_predicted(model: LatencyModel) -> None:
    space = load_search_space("mixed")
    choices = space.sample(200, np.random.default_rng(9))
    predicted = model.predict(space, choices, (10,))
    truth = true_latency_ms(space.costs(choices, (10,)), 1.0)
    errors = np.abs(predicted[FP32].mean / truth - 1)
    assert np.median(errors) < 0.05
    assert (errors < 0.2).mean() > 0.9
    position, fastest = model.fastest(space, choices, (10,))
    assert (position == 1).mean() > 0.9, "int8 is the fast deployment of this device"
    assert (fastest.mean <= predicted[FP32].mean).all()


def test_prediction_does_not_depend_on_its_batch(model: LatencyModel) -> None:
    space = load_search_space("dense")
    choices = space.sample(20, np.random.default_rng(3))
    together = model.predict(space, choices, (10,))[INT8].mean
    alone = [model.predict(space, row[None], (10,))[INT8].mean[0] for row in choices]
    assert together == pytest.approx(np.array(alone), rel=1e-9)


def test_a_profile_serves_backbones_and_detectors() -> None:
    """Networks with different slots in one profile, some of them with times of their blocks."""
    profile = fake_profile(networks=60, spaces=("mixed", "detect"))
    slots = slots_of(profile.networks, profile.output_size)
    per_block = {name: value / slots.kind.shape[1] for name, value in slots.totals().items()}
    ms = np.where(slots.count > 0, 1e-6 + true_latency_ms(per_block, 1.0), math.nan)
    lengths = [len(load_search_space(a.space).slot_places(a)) for a in profile.networks]
    table = profile.tables[0]
    timed = tuple(
        replace(t, block_ms=tuple(row[:n]) if i % 3 else ())
        for i, (t, row, n) in enumerate(zip(table.timings, ms, lengths, strict=True))
    )
    model = LatencyModel(with_table(profile, replace(table, timings=timed)))
    for name in ("mixed", "detect"):
        space = load_search_space(name)
        choices = space.sample(100, np.random.default_rng(9))
        truth = true_latency_ms(space.costs(choices, (10,)), 1.0)
        assert np.median(np.abs(model.predict(space, choices, (10,))[FP32].mean / truth - 1)) < 0.1


def test_a_profile_of_a_space_that_is_gone_is_named(profile: DeviceProfile, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    profile.save(path)
    document = json.loads(path.read_text())
    del document["sha256"]
    document["networks"][0]["space"] = "of-another-version"
    path.write_text(json.dumps({**document, "sha256": _digest(document)}))
    with pytest.raises(UserError, match=r"p\.json holds a network .* space 'of-another-version'") as error:
        DeviceProfile.load(path)
    assert "move that file away" in str(error.value.hint)


def test_blocks_that_were_never_measured_are_refused(model: LatencyModel) -> None:
    space = load_search_space("detect")
    with pytest.raises(UserError, match="never measured blocks of kind down, lateral, merge, predict") as error:
        model.predict(space, space.sample(3, np.random.default_rng(0)), (10,))
    assert error.value.hint is not None
    assert "--space detect" in error.value.hint
    for_detectors = LatencyModel(fake_profile(networks=20, spaces=["detect"]), prior=[fake_profile("known")])
    assert (for_detectors.predict(space, space.sample(3, np.random.default_rng(0)), (10,))[FP32].mean > 0).all(), (
        "a prior that knows no detectors is left out"
    )
    with pytest.raises(UserError, match="kind head"):
        for_detectors.predict(load_search_space("mixed"), np.zeros((1, 34), dtype=np.int64), (10,))


def test_drift_of_the_device_is_taken_out(profile: DeviceProfile) -> None:
    table = profile.tables[0]
    latency = table.column("latency_ms")
    drift = 1 + 0.5 * np.random.default_rng(0).random(len(latency))
    drift /= np.median(drift)
    references = [*(0.7 * drift[:-1]), math.nan]
    timings = [NetworkTiming(ms, ref, 1.0) for ms, ref in zip(latency * drift, references, strict=True)]
    drifted = replace(table, timings=tuple(timings))
    steady = drifted.steady_latency_ms()
    ratio = steady[:-1] / latency[:-1]
    assert ratio == pytest.approx(np.full(len(ratio), ratio[0])), "only a common factor is left"
    assert ratio[0] == pytest.approx(1, abs=0.05)
    assert steady[-1] == drifted.timings[-1].latency_ms, "without a reference there is nothing to correct with"


def test_a_deployment_follows_the_device_in_its_own_way() -> None:
    profile = fake_profile(networks=60)
    table = profile.tables[0]
    latency = table.column("latency_ms")
    slowness = np.exp(np.abs(np.random.default_rng(0).normal(0, 0.05, len(latency))))
    timings = [
        NetworkTiming(ms, ref, 1.0) for ms, ref in zip(latency * slowness**2.5, 0.7 * slowness, strict=True)
    ]  # fmt: skip
    timings[-1] = replace(timings[-1], reference_ms=math.nan)
    drifted = replace(table, timings=tuple(timings))
    wrong = {
        name: np.std(np.log(found[:-1] / latency[:-1]))
        for name, found in (
            ("by the reference alone", drifted.steady_latency_ms()),
            ("as strongly as it suffers", usual_latency_ms(replace(profile, tables=(drifted,)), drifted)),
        )
    }
    assert wrong["as strongly as it suffers"] < 0.2 * wrong["by the reference alone"]


def test_few_networks_are_helped_by_known_devices(profile: DeviceProfile) -> None:
    """A device twice as slow as one of 80 networks, of which 6 were measured: too few without a prior."""
    few = replace(
        profile,
        name="new",
        networks=profile.networks[:6],
        tables=tuple(
            replace(t, timings=tuple(replace(m, latency_ms=2 * m.latency_ms) for m in t.timings[:6]))
            for t in profile.tables
        ),
    )
    known = fake_profile("known", networks=80)
    with pytest.raises(UserError, match="too few"):
        LatencyModel(few)
    model = LatencyModel(few, prior=[known])
    space = load_search_space("mixed")
    choices = space.sample(100, np.random.default_rng(4))
    truth = 2 * true_latency_ms(space.costs(choices, (10,)), 1.0)
    assert np.median(np.abs(model.predict(space, choices, (10,))[FP32].mean / truth - 1)) < 0.1


def test_a_source_is_fitted_once_for_all_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    known, fitted = fake_profile("known", networks=40), []
    deployments = [FP32, replace(FP32, precision="int8"), replace(FP32, runtime="openvino")]
    fit = BlockLatencyPredictor.fit

    def spy(self: BlockLatencyPredictor, *data: Any) -> BlockLatencyPredictor:
        fitted.append(self.folds)
        return fit(self, *data)

    monkeypatch.setattr(BlockLatencyPredictor, "fit", spy)
    sources = PriorPredictors([known])
    found = [sources.nearest(d) for d in deployments]
    assert all(set(f) == set(found[0]) for f in found)
    assert fitted == [0] * len(known.tables), "and without standard deviations"


def test_corrections_scale_and_widen(profile: DeviceProfile, model: LatencyModel) -> None:
    space = load_search_space("mixed")
    choices = space.sample(5, np.random.default_rng(0))
    corrected = LatencyModel(profile, [FP32], {FP32: Correction(2.0, relative_std=0.5)}).predict(space, choices, (10,))[
        FP32
    ]
    plain = model.predict(space, choices, (10,))[FP32]
    assert corrected.mean == pytest.approx(2 * plain.mean)
    assert (corrected.std > 2 * plain.std).all()


def test_a_deployment_that_follows_the_device_twice_as_strongly_is_corrected_so(
    profile: DeviceProfile, model: LatencyModel
) -> None:
    space = load_search_space("mixed")
    choices = space.sample(5, np.random.default_rng(0))
    corrected = LatencyModel(profile, [FP32], {FP32: Correction(1.2, exponent=2.0)}).predict(space, choices, (10,))
    assert corrected[FP32].mean == pytest.approx(1.44 * model.predict(space, choices, (10,))[FP32].mean)


def test_what_is_around_a_network_is_added_by_its_input(profile: DeviceProfile, model: LatencyModel) -> None:
    space = load_search_space("mixed")
    around_ms = {input: input.shape[1] / 100 for input in space.inputs}
    whole = model.around(around_ms)
    assert whole.deployments == tuple(d.covering(PIPELINE) for d in model.deployments)
    choices = space.sample(50, np.random.default_rng(0))
    alone, found = model.predict(space, choices, (10,)), whole.predict(space, choices, (10,))
    expected = alone[FP32].mean + space.resolutions(choices) / 100
    np.testing.assert_allclose(found[FP32.covering(PIPELINE)].mean, expected)
    np.testing.assert_array_equal(found[FP32.covering(PIPELINE)].std, alone[FP32].std)
    assert model.processing_ms == {}, "the model itself is as it was"


def test_held_out_error_beats_the_baselines(profile: DeviceProfile) -> None:
    error = held_out_error(profile, FP32)
    assert error is not None
    assert error.within_10pct > max(error.constant_within_10pct, error.macs_within_10pct)


def test_too_few_measurements_are_refused(profile: DeviceProfile) -> None:
    with pytest.raises(UserError, match="too few"):
        LatencyModel(profile, [Deployment("openvino", "fp32", 2)])


def test_targets(profile: DeviceProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_fake_profile(tmp_path, profile)
    save_fake_profile(tmp_path, fake_profile("elsewhere", host=False))
    assert load_target("fake").is_host
    other = load_target("elsewhere")
    assert not other.is_host
    assert any("another processor" in d for d in other.differences)
    names = {summary.name: summary for summary in list_targets()}
    assert names[LOCAL].matches_host
    assert names["fake"].matches_host
    assert not names["elsewhere"].matches_host
    with pytest.raises(UnknownNameError, match="elsewere") as error:
        load_target("elsewere")
    assert error.value.hint is not None
    assert "elsewhere" in error.value.hint


def test_a_damaged_profile_does_not_hide_the_other_targets(
    profile: DeviceProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_fake_profile(tmp_path, profile)
    (tmp_path / "nas" / "profiles" / "broken.json").write_text('{"schema": 2}')
    found = {summary.name: summary for summary in list_targets()}
    assert found["fake"].source == "saved"
    assert found["broken"].source == "unreadable"
    assert "is not a profile of schema" in found["broken"].description


@pytest.mark.parametrize("name", ["", "a/b", "../../secrets", "x" * 300])
def test_what_cannot_be_a_file_is_no_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match="cannot be the name"):
        load_target(name)
    assert run(["profile", name, "--import-kit", str(tmp_path / "result.json")]) == 1
    assert "cannot be the name" in capsys.readouterr().err


@pytest.mark.parametrize(("own", "known"), [(12, "bundled"), (64, LOCAL)])
def test_a_profile_of_few_networks_does_not_take_the_place_of_one_of_many(
    own: int, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are of this host; from enough networks on, what was measured on the very machine counts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fake_profile("bundled", networks=80).save(tmp_path / "bundled.json")
    monkeypatch.setattr("nas.targets.registry.BUNDLED", {"bundled": BundledProfile("bundled.json", "")})
    monkeypatch.setattr("nas.targets.registry.bundled_path", lambda name: tmp_path / f"{name}.json")
    save_fake_profile(tmp_path, fake_profile(LOCAL, networks=own))
    for threads, task in ((None, None), (FP32.threads, "classification")):
        found = load_target(LOCAL, threads, task=task).profile
        assert found is not None
        assert found.name == known
    assert load_target(LOCAL, FP32.threads + 1).profile is None, "neither knows so many threads"
    save_fake_profile(tmp_path, fake_profile(LOCAL, networks=own, batch=8))
    batched = load_target(LOCAL).profile
    assert batched is not None
    assert (batched.name, batched.batch) == (LOCAL, 8), "no other one knows calls of so many images"


def test_a_profile_has_one_batch(profile: DeviceProfile) -> None:
    assert profile.batch == 1
    assert fake_profile(networks=1, batch=8).batch == 8
    with pytest.raises(ValueError, match="one batch"):
        with_table(profile, replace(profile.tables[0], deployment=replace(FP32, batch=8))).batch  # noqa: B018


def test_a_profile_of_another_task_does_not_make_this_host_known(
    profile: DeviceProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nas.targets.registry.BUNDLED", {})
    save_fake_profile(tmp_path, replace(profile, name=LOCAL))
    assert load_target(LOCAL, task="classification").profile is not None
    assert load_target(LOCAL, task="detection").profile is None, "so that a search measures detectors first"


def test_memory_and_kernel_do_not_make_another_device(profile: DeviceProfile) -> None:
    here = profile.fingerprint
    assert material_differences(here, replace(here, memory_bytes=1, os="other", python="3.99")) == []
    assert material_differences(here, replace(here, isa=(*here.isa, "zzz"))) != []


def test_a_runtime_that_one_host_lacks_does_not_make_another_device(profile: DeviceProfile) -> None:
    """A kit knows nothing of OpenVINO, though it may have been measured on this very host."""
    here = replace(profile.fingerprint, packages=(("onnxruntime", "1.31.0"), ("openvino", "2026.4"), ("torch", "2.15")))
    kit = replace(here, packages=(("onnxruntime", "1.31.2"),))
    assert material_differences(here, kit) == material_differences(kit, here) == []
    assert material_differences(here, replace(kit, packages=(("onnxruntime", "1.30.0"),))) != []
    newer = replace(here, packages=(*here.packages[:2], ("torch", "2.16")))
    assert material_differences(here, newer) == []
    assert material_differences(replace(here, gpu="GPU"), replace(newer, gpu="GPU")) != [], "PyTorch runs there"


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_bundled_profiles_are_whole_and_beat_their_baselines(name: str) -> None:
    profile = DeviceProfile.load(bundled_path(name))
    for table in profile.tables:
        assert table.held_out is not None
        assert table.held_out.within_10pct > table.held_out.constant_within_10pct
        assert table.held_out.within_10pct > table.held_out.macs_within_10pct
        assert table.measured > 0
        assert (table.column("latency_ms")[np.isfinite(table.column("latency_ms"))] > 0).all()
    LatencyModel(profile)
