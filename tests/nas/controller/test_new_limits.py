"""Answers to other limits: which folder they lie in, and what the same command finds there later."""

from pathlib import Path
from typing import Any

import pytest

from nas.controller import new_limits as module
from nas.controller.config import SearchConfig
from nas.controller.new_limits import changed_config, search_again
from nas.controller.planning.budget import Budget
from nas.controller.runs.run_folder import RunFolder
from nas.files.writing import write_json
from nas.limits import Limits
from nas.tasks.same_data import SPLITS_FILE


class Reached(Exception):
    """The search began to load its inputs."""


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Budget, Path]]:
    """The budget, and the record of the target, of every search that has begun; none gets any further."""
    found: list[tuple[Budget, Path]] = []

    def load(config: SearchConfig, budget: Budget, progress: object, known: Path, device: object) -> None:
        found.append((budget, known))
        raise Reached

    monkeypatch.setattr(module, "load_inputs", load)
    return found


@pytest.fixture
def old(tmp_path: Path) -> RunFolder:
    """A run whose limit was 10 ms."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    write_json(folder.config, SearchConfig(limits=Limits.of(latency_ms=10.0), out=folder.path).identity())
    write_json(folder.target, {})
    return folder


def begun(old: RunFolder, changes: dict[str, Any]) -> RunFolder:
    """The folder of an answer as a killed process left it."""
    config = changed_config(old, changes)
    folder = RunFolder(config.run_dir)
    folder.path.mkdir(parents=True)
    write_json(folder.config, config.identity())
    write_json(folder.account, {"prepare": 40.0, "short_training": 60.0, "total": 100.0})
    return folder


def test_an_answer_that_was_killed_goes_on_with_its_budget_and_its_target(
    old: RunFolder, asked_for: list[tuple[Budget, Path]]
) -> None:
    changes = {"latency_ms": 5.0, "budget_s": 1800.0}
    with pytest.raises(Reached):
        search_again(old.path, changes)
    budget, known = asked_for.pop()
    assert budget.account()["total"] < 100
    assert known == old.target

    folder = begun(old, changes)
    with pytest.raises(Reached):
        search_again(old.path, changes)
    budget, known = asked_for.pop()
    assert budget.account()["total"] >= 100
    assert budget.account()["short_training"] == 60.0
    assert known == old.target, "it was killed before it recorded its own"

    write_json(folder.target, {})
    with pytest.raises(Reached):
        search_again(old.path, changes)
    assert asked_for.pop()[1] == old.target, "without its splits nobody knows whether the data are the same"
    (folder.path / SPLITS_FILE).touch()
    with pytest.raises(Reached):
        search_again(old.path, changes)
    assert asked_for.pop()[1] == folder.target
