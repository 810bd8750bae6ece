"""Searches in spaces that stand in no table of the product: an attribute of a module, and a table in a file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nas.bundles.verify import verify_bundle
from nas.cli.main import run
from nas.networks.description import NETWORK, read_description
from nas.tasks import TASKS
from search_spaces import load_search_space, resolve_space, space_of
from search_spaces.documents import document_of
from tests.nas.controller.conftest import tell_throughput
from tests.nas.fake_device import fake_profile
from tests.search_spaces.test_reference import written

OWN = "tests.search_spaces.own_space"


def searched(space: str, out: Path, data: Path, *more: str) -> int:
    line = ["search", "--target", "fake", "--latency-ms", "200", "--max-trials", "1", "--no-baselines", "--seed", "1"]
    line += ["--precision", "fp32"]
    return run([*line, "--space", space, "--data", str(data), "--out", str(out), "--estimator", "short", *more])


@pytest.mark.slow
@pytest.mark.usefixtures("brief", "impatient")
def test_a_space_that_is_no_staged_one(cache: Path, colours: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert searched(f"{OWN}:PLAIN", out, colours) == 0
    best = json.loads((out / "result.json").read_text())["best"][0]
    assert best["architecture"]["space"] == f"{OWN}:PLAIN"
    assert best["key"].startswith(f"{OWN}:PLAIN:")
    description = read_description(out / "winners/1" / NETWORK)
    assert {block.kind for block in space_of(description.source).blocks(description.source, (3,))} == {
        "stem",
        "rep",
        "head",
    }
    line = ["export", f"{out}#1", "--out", str(tmp_path / "bundle"), "--target", "local"]
    assert run([*line, "--runtime", "onnxruntime", "--precision", "fp32"]) == 0
    assert {check.status for check in verify_bundle(tmp_path / "bundle")} <= {"passed", "not repeated"}
    assert searched(f"{OWN}:PLAIN", tmp_path / "shared", colours, "--estimator", "supernet") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("brief", "impatient", "trained_here")
def test_a_table_in_a_file_goes_with_the_run(
    cache: Path, colours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, small = tmp_path / "run", load_search_space("mobile")
    path = written(small, tmp_path, resolutions=[32], anchors=[])
    tell_throughput(cache / "nas", resolve_space(str(path)), TASKS["classification"].recipe())
    small_ones = ("--max-params", "300000", "--sampler", "random")
    assert searched(str(path), out, colours, *small_ones) == 0
    name = json.loads((out / "config.json").read_text())["space"]
    assert name.startswith("lean@")
    assert json.loads((out / "space.json").read_text())["name"] == "lean"
    path.unlink()
    moved = tmp_path / "elsewhere"
    shutil.copytree(out / "winners/1", moved)
    description = read_description(moved / NETWORK)
    assert description.source.space == name
    assert description.build() is not None
    capsys.readouterr()
    assert searched(name, out, colours, *small_ones, "--json") == 0, "the run's own table is found again"
    assert json.loads(capsys.readouterr().out)["space"] == name
    assert run(["search", "--run", str(out), "--latency-ms", "100", "--max-trials", "1"]) == 0
    other = written(small, tmp_path, resolutions=[32], anchors=[], stem_widths=[16])
    assert searched(str(other), out, colours, *small_ones) == 1
    assert "another configuration" in capsys.readouterr().err


def test_a_profile_that_measured_its_own_family_predicts_it(tmp_path: Path) -> None:
    from nas.errors import UserError
    from nas.targets.latency import LatencyModel
    from nas.targets.profile import DeviceProfile

    space = resolve_space(f"{OWN}:SPACE")
    choices = space.sample(50, np.random.default_rng(5))
    with pytest.raises(UserError, match="never measured blocks of kind separable") as refused:
        LatencyModel(fake_profile()).predict(space, choices, (10,))
    assert refused.value.hint is not None
    assert f"--space {OWN}:SPACE" in refused.value.hint
    fake_profile("own", networks=30, spaces=[f"{OWN}:SPACE"]).save(tmp_path / "own.json")
    profile = DeviceProfile.load(tmp_path / "own.json")
    assert {arch.space for arch in profile.networks} == {f"{OWN}:SPACE"}
    predicted = LatencyModel(profile).predict(space, choices, (10,))
    assert all((p.mean > 0).all() for p in predicted.values())
    plain = resolve_space(f"{OWN}:PLAIN")
    few = plain.sample(5, np.random.default_rng(0))
    known = LatencyModel(fake_profile()).predict(plain, few, (10,))
    assert all((p.mean > 0).all() for p in known.values())


def test_a_profile_holds_the_tables_of_its_networks(tmp_path: Path) -> None:
    from nas.targets.profile import DeviceProfile

    path = written(load_search_space("mobile"), tmp_path)
    profile = fake_profile("file", networks=4, spaces=[str(path)])
    path.unlink()
    profile.save(tmp_path / "file.json")
    loaded = DeviceProfile.load(tmp_path / "file.json")
    assert loaded.networks == profile.networks
    table = {**document_of(load_search_space("mobile")), "name": "lean"}
    assert json.loads((tmp_path / "file.json").read_text())["networks"][0]["table"] == table
