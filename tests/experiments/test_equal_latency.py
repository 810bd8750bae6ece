"""A random network that is compared with a winner is as fast as it, and is trained as it was."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments import equal_latency
from experiments.equal_latency import LIKELY, as_fast, winner_of
from nas.deployment import Deployment
from nas.errors import UserError
from nas.networks.description import NetworkDescription
from nas.tasks.recipes import recipe_named
from search_spaces import Architecture, resolve_space

SIZE = (3,)
ALLOWED = {"tokens": [32], "vocab": [1000]}


@pytest.fixture
def arch() -> Architecture:
    space = resolve_space("text").restricted(ALLOWED)
    return space.architecture(space.sample(1, np.random.default_rng(0))[0])


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[[Architecture], Path]:
    """Writes what a finished search for a network leaves, as far as it is read."""

    def write(arch: Architecture) -> Path:
        space = resolve_space("text")
        folder = tmp_path / "run"
        finalist = folder / "finalists" / "one"
        finalist.mkdir(parents=True)
        best = {
            "architecture": space.to_json(arch),
            "runtime": "onnxruntime",
            "precision": "fp32",
            "threads": 1,
            "measured_latency_ms": {"p50": 0.5},
            "test_figures": {"accuracy": 0.8},
        }
        (folder / "result.json").write_text(json.dumps({"best": [best]}))
        (folder / "config.json").write_text(json.dumps({"space": "text", "allowed": ALLOWED, "seed": 3}))
        record = {
            "network": NetworkDescription.of_architecture(space, arch, SIZE).to_json(),
            "recipe": recipe_named("text").to_json(),
            "seconds": 12.5,
        }
        (finalist / "trained.json").write_text(json.dumps(record))
        return folder

    return write


def test_a_winner_and_how_it_was_trained(run_of: Callable[[Architecture], Path], arch: Architecture) -> None:
    found = winner_of(run_of(arch))
    assert found.arch == arch
    assert (found.deployment, found.p50_ms, found.seconds) == (Deployment("onnxruntime", "fp32", 1), 0.5, 12.5)
    assert found.recipe == recipe_named("text")
    drawn = found.space.sample(20, np.random.default_rng(0))
    assert {found.space.signature(found.space.architecture(row), SIZE).input.shape for row in drawn} == {(32,)}


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
    space = resolve_space("text").restricted(ALLOWED)
    monkeypatch.setattr(equal_latency, "WITHIN", 0.5)  # calls are few here
    found = winner_of(run_of(arch))
    (tmp_path / "files").mkdir()
    other, ratio = as_fast(found, SIZE, tmp_path / "files")
    macs = space.costs(space.choices([arch, other]), SIZE)["macs"]
    assert 0.5 <= ratio <= 1.5
    assert 1 / LIKELY <= macs[1] / macs[0] <= LIKELY
    assert other != arch

    monkeypatch.setattr(equal_latency, "WITHIN", -1.0)
    monkeypatch.setattr(equal_latency, "DRAWS", 60)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="is as fast as the winner"):
        as_fast(found, SIZE, tmp_path / "none")
