"""Profiling this host, small: real networks, real measurements."""

import json
import math
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.cli.main import run
from nas.measure import protocol
from nas.targets.latency import LatencyModel
from nas.targets.preparing import networks_to_measure
from nas.targets.profile import DeviceProfile
from search_spaces import load_search_space


def test_planned_networks_are_distinct_and_reproducible() -> None:
    planned = networks_to_measure(("mixed", "mobile", "dense"), 12, 0, [32])
    assert len({a.key for a in planned}) == 12
    assert [a.space for a in planned[:3]] == ["mixed", "mobile", "dense"]
    assert planned == networks_to_measure(("mixed", "mobile", "dense"), 12, 0, [32])
    assert planned[:6] == networks_to_measure(("mixed", "mobile", "dense"), 6, 0, [32]), "a longer plan only adds"


TINY = ["profile", "tiny", "--budget", "10m", "--networks", "12", "--json", "--runtime", "onnxruntime"]
TINY += ["--precision", "fp32"]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A profile of 12 classifiers, and what the command said of it."""
    out = tmp_path_factory.mktemp("profile") / "p.json"
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setattr(protocol, "REPEATS", 0)  # as `impatient`
        assert run([*TINY, "--resolution", "32", "--out", str(out)]) == 0
    return out, json.loads(said.getvalue())


@pytest.mark.slow
@pytest.mark.alone
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
@pytest.mark.alone
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
        predicted = model.predict(space, space.sample(5, np.random.default_rng(0)), 10)
        assert all((p.mean > 0).all() for p in predicted.values())


def test_unknown_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "x", "--precision", "int3", "--out", str(tmp_path / "p.json")]) == 1
    said = capsys.readouterr().err
    assert "int3" in said
    assert "hint: it has:" in said
