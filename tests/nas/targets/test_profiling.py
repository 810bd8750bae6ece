"""Profiling this host, small: real networks, real measurements."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.slow
@pytest.mark.alone
def test_profile_command_measures_and_continues(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    line = [sys.executable, "-m", "nas", "profile", "tiny", "--budget", "10m", "--networks", "12", "--json"]
    line += ["--runtime", "onnxruntime", "--precision", "fp32", "--resolution", "32", "--out", str(out)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["deployments"]
    assert row["n_networks"] == 12
    assert row["n_heldout"] == 3
    assert row["n_blocks"] > 12, "the runtime's own profiler told how long blocks took"
    assert row["memory_mb"] > 0
    energy = json.loads(done.stdout)["energy_not_measured"]
    assert (row["energy_mj"] is None) == (energy is not None), "measured, or a reason why not"
    profile = DeviceProfile.load(out)
    began = time.monotonic()
    again = subprocess.run(line, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert DeviceProfile.load(out).tables[0].timings == profile.tables[0].timings, "nothing is measured again"
    assert time.monotonic() - began < 60


@pytest.mark.slow
@pytest.mark.alone
def test_one_profile_holds_classifiers_and_detectors(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    line = [sys.executable, "-m", "nas", "profile", "tiny", "--budget", "10m", "--networks", "12", "--json"]
    line += ["--runtime", "onnxruntime", "--precision", "fp32", "--out", str(out), "--resolution"]
    for space, resolution in (("mixed", "32"), ("detect", "128")):
        done = subprocess.run([*line, resolution, "--space", space], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["deployments"][0]["n_heldout"] >= 3
    profile = DeviceProfile.load(out)
    assert [a.space for a in profile.networks] == 12 * ["mixed"] + 12 * ["detect"]
    (table,) = profile.tables
    for arch, timing in zip(profile.networks, table.timings, strict=True):
        counts = load_search_space(arch.space).slot_places(arch)
        assert [math.isfinite(ms) for ms in timing.block_ms] == [bool(names) for names in counts]
    model = LatencyModel(profile)
    for name in ("mixed", "detect"):
        space = load_search_space(name)
        predicted = model.predict(space, space.sample(5, np.random.default_rng(0)), 10)
        assert all((p.mean > 0).all() for p in predicted.values())


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "nas", "profile", "x", "--precision", "int3", "--out", str(tmp_path / "p.json")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "int3" in done.stderr
    assert "hint: it has:" in done.stderr
