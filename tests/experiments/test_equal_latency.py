"""A random network that is compared with a winner is as fast as it, and is trained as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import equal_latency
from experiments.equal_latency import as_fast, nearest, winner_of
from nas.deployment import Deployment
from nas.errors import UserError
from nas.networks.description import NetworkDescription
from nas.tasks.recipes import recipe_named
from search_spaces import Architecture, resolve_space
from tests.nas.fake_device import fake_profile, save_fake_profile

SIZE = (1, 3)
ALLOWED = {"resolution": [128]}
CONFIG = {"task": "pose", "target": "poser", "space": "pose", "allowed": ALLOWED, "seed": 3}


@pytest.fixture
def arch() -> Architecture:
    space = resolve_space("pose").restricted(ALLOWED)
    return space.architecture(space.sample(1, np.random.default_rng(0))[0])


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[[Architecture], Path]:
    """Writes what a finished search for a network leaves, as far as it is read."""

    def write(arch: Architecture) -> Path:
        space = resolve_space("pose")
        folder = tmp_path / "run"
        finalist = folder / "finalists" / "one"
        finalist.mkdir(parents=True)
        best = {
            "architecture": space.to_json(arch),
            "runtime": "onnxruntime",
            "precision": "fp32",
            "threads": 1,
            "measured_latency_ms": {"p50": 0.5},
            "test_figures": {"OKS-mAP@50:95": 0.8},
        }
        (folder / "result.json").write_text(json.dumps({"best": [best]}))
        (folder / "config.json").write_text(json.dumps(CONFIG))
        record = {
            "network": NetworkDescription.of_architecture(space, arch, SIZE).to_json(),
            "recipe": recipe_named("pose-fast").to_json(),
            "seconds": 12.5,
        }
        (finalist / "trained.json").write_text(json.dumps(record))
        return folder

    return write


def test_a_winner_and_how_it_was_trained(run_of: Callable[[Architecture], Path], arch: Architecture) -> None:
    found = winner_of(run_of(arch))
    assert found.arch == arch
    assert (found.deployment, found.p50_ms, found.seconds) == (Deployment("onnxruntime", "fp32", 1), 0.5, 12.5)
    assert found.recipe == recipe_named("pose-fast")
    drawn = found.space.sample(20, np.random.default_rng(0))
    assert {found.space.signature(found.space.architecture(row), SIZE).input.shape for row in drawn} == {(3, 128, 128)}


def test_a_run_without_a_winner_is_one_sentence(
    run_of: Callable[[Architecture], Path], arch: Architecture, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="has no result"):
        winner_of(tmp_path)
    run = run_of(arch)
    next(run.glob("finalists/*/trained.json")).unlink()
    with pytest.raises(UserError, match="keeps no full training of its winner"):
        winner_of(run)
    (run / "result.json").write_text('{"best": []}')
    with pytest.raises(UserError, match="has no winner"):
        winner_of(run)


def test_a_random_network_is_as_fast(
    run_of: Callable[[Architecture], Path], arch: Architecture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_fake_profile(tmp_path / "cache", fake_profile("poser", spaces=("mixed", "pose"), threads=1))
    monkeypatch.setattr(equal_latency, "DRAWS", equal_latency.DRAWN)
    monkeypatch.setattr(equal_latency, "MOST", 3)
    monkeypatch.setattr(equal_latency, "deploy_untrained", lambda arch, *_: [arch])
    told: dict[str, tuple[float, ...]] = {}

    def measured(archs: list[Architecture], sessions: int) -> list[SimpleNamespace]:
        times = [1.0, *told["times"]][: len(archs)]
        return [SimpleNamespace(failed=None, p50_ms=ms) for ms in times]

    monkeypatch.setattr(equal_latency, "measure", measured)
    found = winner_of(run_of(arch))
    likely = nearest(found, SIZE)
    assert len(likely) == 3
    for times, expected in (((1.5, 1.05, 0.5), 1), ((1.3, 2.0, 0.5), 0)):
        told["times"] = times
        (files := tmp_path / f"files-{expected}").mkdir()
        assert as_fast(found, SIZE, files) == (likely[expected], times[expected])

    told["times"] = (0.5, 0.6, 0.7)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="is as slow as the winner"):
        as_fast(found, SIZE, tmp_path / "none")
