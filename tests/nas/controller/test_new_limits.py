"""Answers to other limits: which folder they lie in, and what the same command finds there later."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from nas.controller import new_limits as module
from nas.controller.config import SearchConfig
from nas.controller.new_limits import changed_config, search_again, take_over
from nas.controller.planning.budget import Budget
from nas.controller.runs.question import Question, read_question, state_of
from nas.controller.runs.run_folder import RunFolder
from nas.controller.runs.storage import open_storage
from nas.errors import UserError
from nas.files.writing import write_json
from nas.limits import Limits
from nas.networks.run_networks import TRAINED
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


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"latency_ms": 5.0}, "5ms"),
        ({"latency_ms": 5.0, "top": 2}, "5ms-top2"),
        ({"latency_ms": 5.0, "max_drop": 0.07}, "5ms-drop7"),
        ({"latency_ms": 5.0, "max_drop": 0.01, "baselines": False, "budget_s": 60.0, "workers": 2}, "5ms"),
        ({"latency_ms": 5.0, "estimator": "short", "baselines": True}, "5ms-short-baselines"),
        ({"latency_ms": None, "objective": "pareto", "top": 4}, "pareto-top4"),
    ],
)
def test_every_question_has_a_folder_of_its_own(old: RunFolder, changes: dict[str, Any], name: str) -> None:
    assert changed_config(old, changes).run_dir == old.path / "limits" / name


def test_an_answer_of_other_settings_names_what_helps(old: RunFolder) -> None:
    folder = begun(old, {"latency_ms": 5.0})
    write_json(folder.config, changed_config(old, {"latency_ms": 5.0, "top": 3}).identity())
    with pytest.raises(UserError, match="top was 3, is None") as error:
        search_again(old.path, {"latency_ms": 5.0})
    assert "remove that folder" in str(error.value.hint)
    assert "--out" not in str(error.value.hint), "which is refused beside --run"


HOUR, FOUR = {"budget_s": 3600.0}, {"budget_s": 14400.0}


@pytest.mark.parametrize(
    ("earlier", "now", "answered"),
    [
        (None, Question({}, "a"), False),
        (Question({}, "a"), Question({}, "a"), True),
        (Question(HOUR, "a"), Question(HOUR, "a"), True),
        (Question({}, "a"), Question(HOUR, "a"), False),
        (Question(HOUR, "a"), Question(FOUR, "a"), False),
        (Question(HOUR, "a"), Question({}, "a"), True),  # what a search found answers all the more
        (Question({}, "a"), Question({}, "b"), False),
        (Question(HOUR, "a"), Question(HOUR, "b"), False),
    ],
)
def test_a_finished_answer_is_one_to_the_same_question(earlier: Question | None, now: Question, answered: bool) -> None:
    assert now.answered_by(earlier) is answered


def evaluated(folder: RunFolder, *keys: str) -> None:
    """Add complete trials of networks with these keys."""
    storage = open_storage(folder.path).storage
    study = optuna.create_study(storage=storage, study_name="search", load_if_exists=True)
    for key in keys:
        study.add_trial(optuna.create_trial(value=0.5, user_attrs={"key": key}))


def evaluated_keys(folder: RunFolder) -> list[str]:
    study = optuna.load_study(study_name="search", storage=open_storage(folder.path).storage)
    return [t.user_attrs["key"] for t in study.trials]


def trained(folder: RunFolder, name: str, told: Mapping[str, Any]) -> None:
    (folder.finalists / name).mkdir(parents=True)
    write_json(folder.finalists / name / TRAINED, told)


def test_a_run_that_learns_more_is_in_another_state(old: RunFolder) -> None:
    states = [state_of(old)]
    evaluated(old, "one")
    states.append(state_of(old))
    trained(old, "one", {"accuracy": 0.5})
    states.append(state_of(old))
    write_json(old.finalists / "one" / TRAINED, {"accuracy": 0.75})
    states.append(state_of(old))
    assert len(set(states)) == 4
    write_json(old.account, {"total": 3.0})
    assert state_of(old) == states[-1]


def test_another_question_takes_over_what_is_new_and_keeps_what_the_answer_found(old: RunFolder) -> None:
    new = RunFolder(old.path / "limits" / "5ms")
    new.path.mkdir(parents=True)
    evaluated(old, "one", "two")
    trained(old, "one", {"accuracy": 0.5})
    write_json(old.final_plan, {"of": "run"})
    first = Question({}, state_of(old))
    take_over(old, new, question=first)
    assert read_question(new) == first
    assert evaluated_keys(new) == ["one", "two"]
    assert new.final_plan.exists()

    # A search that goes on plans a last round of its own; continued, it keeps that, and what it has spent.
    hour = Question(HOUR, first.known)
    write_json(new.account, {"total": 5.0})
    write_json(new.result, {})
    take_over(old, new, question=hour)
    assert not any(path.exists() for path in (new.final_plan, new.account, new.result))
    evaluated(new, "own")
    for path in (new.final_plan, new.account):
        write_json(path, {"of": "answer"})
    take_over(old, new, question=hour)
    assert new.final_plan.exists()
    assert new.account.exists()

    # The run has learnt more: that is added to what was begun.
    evaluated(old, "own", "three")
    trained(old, "three", {"accuracy": 0.75})
    take_over(old, new, question=Question(HOUR, state_of(old)))
    assert evaluated_keys(new) == ["one", "two", "own", "three"]
    assert {path.name for path in new.finalists.iterdir()} == {"one", "three"}
    assert new.final_plan.exists()
    assert new.account.exists()

    # A longer one, before it came to its end, counts what was spent and plans another last round.
    write_json(new.result, {"interrupted": True})
    take_over(old, new, question=Question(FOUR, state_of(old)))
    assert new.account.exists()
    assert not new.final_plan.exists()
    assert evaluated_keys(new) == ["one", "two", "own", "three"]


def test_values_of_another_estimator_are_not_mixed_in(old: RunFolder) -> None:
    new = RunFolder(old.path / "limits" / "5ms")
    new.path.mkdir(parents=True)
    take_over(old, new)
    evaluated(new, "own")
    evaluated(old, "one")
    write_json(old.estimator, {"name": "zero-cost", "why": "", "supernet": None})
    take_over(old, new, question=Question({}, state_of(old)))
    assert evaluated_keys(new) == ["own"]


def test_a_finished_answer_is_read_until_the_run_knows_more(
    old: RunFolder, asked_for: list[tuple[Budget, Path]]
) -> None:
    changes = {"latency_ms": 5.0}
    folder = begun(old, changes)
    take_over(old, folder, question=Question({}, state_of(old)))
    write_json(folder.result, {"answer": 1})
    assert search_again(old.path, changes).document == {"answer": 1}
    with pytest.raises(Reached):
        search_again(old.path, {**changes, "max_trials": 3})
    assert asked_for.pop()[0].account()["total"] < 100, "what a finished answer took is not of this budget"
    assert search_again(old.path, changes).document == {"answer": 1}, "nothing is dropped before inputs are good"
    trained(old, "one", {"accuracy": 0.5})
    with pytest.raises(Reached):
        search_again(old.path, changes)
