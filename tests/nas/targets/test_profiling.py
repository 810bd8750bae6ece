"""Profiling this host, small: real networks, real measurements."""

import json
import math
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from nas.cli.main import run
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import Measurement, summarise
from nas.progress import Progress, SilentProgress, Stage
from nas.runtimes import load_runtime
from nas.targets import profiling
from nas.targets.fitting import costs_of
from nas.targets.latency import LatencyModel
from nas.targets.preparing import OUTPUT_SIZE, Preparer, deploy_untrained, networks_to_measure, preparer, usual_spaces
from nas.targets.profile import DeviceProfile
from nas.targets.profiling import make_profile, profile_summary
from predictors.block_latency import MIN_NETWORKS
from search_spaces import Architecture, SearchSpace, load_search_space, resolve_space
from search_spaces.signature import Size
from tests.nas.brief import hurry
from tests.nas.fake_device import FP32, INT8, fake_measurements, fake_profile


def test_planned_networks_are_distinct_and_reproducible() -> None:
    small = {"resolution": [32]}
    planned = networks_to_measure(usual_spaces(), 12, 0, small)
    assert len({a.key for a in planned}) == 12
    assert [a.space for a in planned[:3]] == ["mixed", "mobile", "dense"]
    assert planned == networks_to_measure(usual_spaces(), 12, 0, small)
    assert planned[:6] == networks_to_measure(usual_spaces(), 6, 0, small), "a longer plan only adds"


@pytest.mark.parametrize("spaces", [usual_spaces(), usual_spaces()[:2], [resolve_space("detect")]])
def test_every_other_planned_network_is_small_where_asked_for(spaces: Sequence[SearchSpace]) -> None:
    planned = networks_to_measure(spaces, 16, 0, small=True)
    assert len({a.key for a in planned}) == 16
    assert planned[:6] == networks_to_measure(spaces, 6, 0, small=True), "a longer plan only adds"
    assert Counter(a.space for a in planned) == {space.name: 16 // len(spaces) for space in spaces}
    for space in spaces:
        macs = np.sort(costs_of([a for a in planned if a.space == space.name], OUTPUT_SIZE)["macs"])
        usual = np.quantile(space.costs(space.sample(300, np.random.default_rng(1)), OUTPUT_SIZE)["macs"], 0.05)
        assert (macs[: len(macs) // 2] < usual).all()
    first = costs_of(planned[:4], OUTPUT_SIZE)["macs"]
    assert first.max() > 5 * first.min(), "the first few already differ widely"


@pytest.mark.parametrize("small", [False, True])
def test_no_more_networks_are_planned_than_the_spaces_have(small: bool) -> None:
    mixed, dense = resolve_space("mixed"), resolve_space("dense")
    one = {decision.name: decision.options[:1] for decision in mixed.decisions}
    few = mixed.restricted(one | {"resolution": next(d for d in mixed.decisions if d.name == "resolution").options[:3]})
    assert len(networks_to_measure([few], 12, 0, small=small)) == few.size == 3
    planned = networks_to_measure([few, dense], 12, 0, small=small)
    assert [a.space for a in planned].count("mixed") == 3
    assert len(planned) == 12


def on_the_fake_device(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda batch: None
) -> list[str]:
    """Measure on the fake device; `before` is called with the number of each batch. Returns the keys of the networks
    measured from now on."""
    measured: list[str] = []
    batches: list[int] = []

    def measure(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        batches.append(len(archs))
        before(len(batches))
        measured.extend(arch.key for arch in archs)
        return fake_measurements(archs, deployments)

    monkeypatch.setattr(profiling, "measure_networks", measure)
    monkeypatch.setattr(profiling, "preparer", lambda: nullcontext(None))
    return measured


def quick(path: Path, networks: int, budget_s: float = math.inf, progress: Progress | None = None) -> DeviceProfile:
    said = progress or SilentProgress()
    return make_profile(
        "p", [FP32, INT8], path=path, progress=said, budget_s=budget_s, networks=networks, allowed={"resolution": [32]}
    )


def test_an_interrupted_profile_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(batch: int) -> None:
        if batch == 3:
            raise KeyboardInterrupt

    measured = on_the_fake_device(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        quick(tmp_path / "p.json", 20)
    assert len(DeviceProfile.load(tmp_path / "p.json").networks) == len(measured) == 8, "what was measured is kept"
    done = quick(tmp_path / "p.json", 20)
    assert len(set(measured)) == len(measured) == 20, "and is not measured again"
    assert [arch.key for arch in done.networks] == measured
    assert all(table.held_out is not None for table in done.tables)


class Said(SilentProgress):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.totals: list[float | None] = []

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        self.totals.append(total)
        with super().stage(name, total) as stage:
            yield stage

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_only_what_is_left_is_counted_and_more_than_asked_for_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time left would be guessed from networks that took no time in this call."""
    measured, path, said = on_the_fake_device(monkeypatch), tmp_path / "p.json", Said()
    made = quick(path, 12)
    replace(made, fingerprint=replace(made.fingerprint, os="a former kernel", python="3.0")).save(path)
    quick(path, 20, progress=said)
    assert said.totals == [8], "a new kernel does not make another host"
    assert len(quick(path, 12, progress=said).networks) == len(measured) == 20
    assert said.notes == []
    assert [file.name for file in tmp_path.iterdir()] == ["p.json"]


def test_a_profile_that_is_begun_anew_is_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_fake_device(monkeypatch)
    path, said = tmp_path / "p.json", Said()
    made = quick(path, 12)
    replace(made, fingerprint=replace(made.fingerprint, cpu_model="a former processor")).save(path)
    quick(path, 12, progress=said)
    (note,) = said.notes
    assert "a former processor there" in note
    assert "p.json.old" in note
    assert DeviceProfile.load(tmp_path / "p.json.old").fingerprint.cpu_model == "a former processor"


def test_a_spent_budget_leaves_a_profile_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_fake_device(monkeypatch)
    profile = quick(tmp_path / "p.json", 40, budget_s=0)
    assert len(profile.networks) == MIN_NETWORKS
    space = load_search_space("mixed").restrict("resolution", [32])
    assert (LatencyModel(profile).predict(space, space.sample(5, np.random.default_rng(0)), (10,))[FP32].mean > 0).all()


def test_a_deployment_that_fails_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        rows = fake_measurements(archs, deployments)
        return [[row[0], summarise(row[1].request, [], "no kernel for int8", math.nan)] for row in rows]

    on_the_fake_device(monkeypatch)
    monkeypatch.setattr(profiling, "measure_networks", measure)
    with pytest.raises(UserError, match="with onnxruntime-int8: no kernel for int8"):
        quick(tmp_path / "p.json", 16)
    known, failed = DeviceProfile.load(tmp_path / "p.json").tables
    assert known.held_out is not None
    assert (failed.measured, failed.held_out) == (0, None)


def test_a_place_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = on_the_fake_device(monkeypatch)
    (tmp_path / "file").write_text("notes of somebody")
    for path, words, hint in (
        (tmp_path, "cannot write", "--out"),
        (tmp_path / "file" / "p.json", "cannot be written to", "name a folder"),
        (tmp_path / "file", "not a profile", "--out"),
    ):
        with pytest.raises(UserError, match=words) as error:
            quick(path, 12)
        assert hint in str(error.value.hint)
    assert measured == []
    assert (tmp_path / "file").read_text() == "notes of somebody"


def test_the_summary_has_the_promised_figures_of_each_deployment() -> None:
    named = "n_blocks n_networks n_heldout mape within_5pct within_10pct kendall_tau constant_within_10pct "
    named += "macs_within_10pct noise_floor_pct seconds"
    for row in profile_summary(fake_profile(networks=12))["deployments"]:
        assert set(named.split()) <= row.keys()


TINY = ["profile", "tiny", "--budget", "10m", "--networks", "12", "--json", "--runtime", "onnxruntime"]
TINY += ["--precision", "fp32"]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A profile of 12 classifiers, and what the command said of it."""
    out = tmp_path_factory.mktemp("profile") / "p.json"
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        hurry(patch)
        patch.setattr(profiling, "preparer", preparer)  # in worker processes, as people do
        assert run([*TINY, "--resolution", "32", "--out", str(out)]) == 0
    return out, json.loads(said.getvalue())


@pytest.mark.slow
@pytest.mark.xdist_group("profiled")
@pytest.mark.usefixtures("impatient")
def test_profile_command_measures_and_continues(profiled: tuple[Path, dict[str, Any]]) -> None:
    out, document = profiled
    (row,) = document["deployments"]
    assert row["n_networks"] == 12
    assert row["n_heldout"] == 3
    assert row["n_blocks"] > 12, "the runtime's own profiler told how long blocks took"
    assert row["memory_mb"] > 0
    energy = document["energy_not_measured"]
    assert (row["energy_mj"] is None) == (energy is not None), "measured, or a reason why not"
    profile = DeviceProfile.load(out)
    assert run([*TINY, "--resolution", "32", "--out", str(out)]) == 0
    assert DeviceProfile.load(out).tables[0].timings == profile.tables[0].timings, "nothing is measured again"


@pytest.mark.slow
@pytest.mark.xdist_group("profiled")
@pytest.mark.usefixtures("impatient")
def test_one_profile_holds_classifiers_and_detectors(
    profiled: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classifiers, out = DeviceProfile.load(profiled[0]), tmp_path / "p.json"
    classifiers.save(out)
    assert run([*TINY, "--resolution", "128", "--space", "detect", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["deployments"][0]["n_heldout"] >= 3
    profile = DeviceProfile.load(out)
    assert profile.networks[:12] == classifiers.networks
    assert [a.space for a in profile.networks[12:]] == 12 * ["detect"]
    (table,) = profile.tables
    assert table.timings[:12] == classifiers.tables[0].timings
    for arch, timing in zip(profile.networks, table.timings, strict=True):
        counts = load_search_space(arch.space).slot_places(arch)
        assert [math.isfinite(ms) for ms in timing.block_ms] == [bool(names) for names in counts]
    model = LatencyModel(profile)
    for name in ("mixed", "detect"):
        space = load_search_space(name)
        predicted = model.predict(space, space.sample(5, np.random.default_rng(0)), (10,))
        assert all((p.mean > 0).all() for p in predicted.values())


@pytest.mark.parametrize("options", ["--precision int3", "--precision int3 --precision fp32"])
def test_unknown_names_are_refused(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = on_the_fake_device(monkeypatch)
    assert run(["profile", "x", *options.split(), "--out", str(tmp_path / "p.json")]) == 1
    said = capsys.readouterr().err
    assert "int3" in said
    assert "hint: it has:" in said
    assert measured == []


def test_what_is_asked_for_twice_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_fake_device(monkeypatch)
    twice = ["--threads", "1", "--runtime", "onnxruntime", "--precision", "fp32"] * 2
    assert run(["profile", "x", *twice, "--networks", "12", "--out", str(tmp_path / "p.json")]) == 0
    assert [t.deployment.name for t in DeviceProfile.load(tmp_path / "p.json").tables] == ["onnxruntime-fp32"]


def test_five_networks_are_a_profile_where_other_devices_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = on_the_fake_device(monkeypatch)
    out = tmp_path / "p.json"
    asked = ["--runtime", "onnxruntime", "--precision", "fp32", "--networks", "5", "--json", "--out", str(out)]
    assert run(["profile", "x", *asked]) == 0
    assert len(measured) == 5
    profile, space = DeviceProfile.load(out), load_search_space("mixed")
    choices = space.sample(5, np.random.default_rng(0))
    (predicted,) = LatencyModel(profile, prior=[fake_profile("known", 64)]).predict(space, choices, (10,)).values()
    assert (predicted.mean > 0).all()


def test_networks_are_prepared_for_every_runtime(tmp_path: Path) -> None:
    """Also for PyTorch, which is among the deployments of every host with a GPU."""
    (arch,) = networks_to_measure([resolve_space("mixed")], 1, 0, {"resolution": [32]})
    deployments = [FP32, replace(FP32, runtime="torch")]
    images = np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)
    exported, eager = (
        load_runtime(request.deployment.runtime).load(request.path, request.deployment).run(images)
        for request in deploy_untrained(arch, deployments, tmp_path, 0)
    )
    assert np.abs(exported - eager).max() < 1e-3 * np.abs(exported).max()


@pytest.mark.parametrize(("space", "size", "in_float"), [("mixed", (10,), False), ("pose", (1, 17), True)])
def test_int8_is_timed_as_it_will_be_delivered(space: str, size: Size, in_float: bool, tmp_path: Path) -> None:
    """Where a task leaves the last layer in floating point, that takes time."""
    known = resolve_space(space)
    resolution = known.decisions[known.column("resolution")].options[0]
    (arch,) = networks_to_measure([known], 1, 0, {"resolution": [resolution]})
    (quantised,) = deploy_untrained(arch, [INT8], tmp_path, 0, size)
    kernels = [t.data_type for t in onnx.load(quantised.path).graph.initializer if len(t.dims) == 4]
    assert onnx.TensorProto.INT8 in kernels or onnx.TensorProto.UINT8 in kernels
    assert (onnx.TensorProto.FLOAT in kernels) == in_float


def test_an_end_of_a_preparing_process_is_a_sentence(tmp_path: Path) -> None:
    archs = networks_to_measure([resolve_space("mixed")], 1, 0, {"resolution": [32]})
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=context, initializer=os.abort) as pool,
        pytest.raises(UserError, match="of 1 images per call was ended"),
    ):
        Preparer(pool).prepare(archs, [FP32], tmp_path, 0)
