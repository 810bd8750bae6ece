"""The search loop, with an executor that answers at once."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.trial import TrialState

from nas.controller.loop import VALIDATED_ONCE, SearchLoop
from nas.controller.planning.budget import Budget
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.promise import most_promising
from nas.controller.runs.run_folder import network_name
from nas.controller.runs.short_weights import KEPT, ShortWeights
from nas.controller.runs.storage import open_storage
from nas.controller.trials import result_of
from nas.controller.values import Evaluated
from nas.data import ImageData
from nas.errors import UserError
from nas.evaluation.short_training import ShortTraining
from nas.executors import Evaluation, Failure, Finished, Journal, Outcome
from nas.limits import Limits
from nas.progress import SilentProgress
from nas.samplers import RandomFeasibleSampler, architecture_of
from nas.targets.latency import LatencyModel
from nas.tasks import TASKS
from search_spaces import Architecture, Choices, StagedSpace, load_search_space
from tests.nas.executors.tasks import RESOLUTION, tiny_data
from tests.nas.fake_device import fake_profile

Answer = Callable[[Evaluation], Outcome | Failure]
Chance = Callable[[Sequence[Evaluated], Architecture], bool]


def capacity_of(task: Evaluation) -> Outcome:
    """Any function of the network will do."""
    return Outcome(accuracy=sum(map(ord, json.dumps(task.to_json()))) % 1000 / 1000, curve=(0.1, 0.2), seconds=2.0)


def everything(choices: Choices) -> NDArray[np.bool_]:
    """No limit: the samplers' limits have tests of their own."""
    return np.ones(len(choices), dtype=np.bool_)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


class Inline:
    """Answers from this process; the latest task comes first, as where several run at once."""

    def __init__(self, folder: Path, answer: Answer, capacity: int = 1) -> None:
        self.journal = Journal(folder / "outcomes")
        self.capacity = capacity
        self.answer = answer
        self.asked: list[Evaluation] = []
        self._waiting: list[Evaluation] = []

    def submit(self, task: Evaluation) -> None:
        assert len(self._waiting) < self.capacity
        self._waiting.append(task)
        self.asked.append(task)

    def wait(self) -> list[Finished]:
        task = self._waiting.pop()
        result = self.answer(task)
        if isinstance(result, Outcome):
            self.journal.write(task, result)
        return [Finished(task, result)]

    def abandon(self) -> None:
        self._waiting.clear()

    def rest(self) -> None:
        pass

    @contextmanager
    def quiet(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mobile").restrict("resolution", [RESOLUTION])


@pytest.fixture(scope="module")
def model() -> LatencyModel:
    return LatencyModel(fake_profile())


@pytest.fixture(scope="module")
def data() -> ImageData:
    return tiny_data()


class Runner:
    """Runs a loop in a folder; called again on the same folder it goes on."""

    def __init__(self, space: StagedSpace, model: LatencyModel, data: ImageData) -> None:
        self.scorer = CandidateScorer(space, model, Limits.of(latency_ms=50.0), data.output_size)
        self.space = space
        self.data = data

    def __call__(
        self, folder: Path, answer: Answer, *, trials: int = 6, capacity: int = 1, chance: Chance | None = None
    ) -> tuple[optuna.Study, Inline]:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        recipe = ShortTraining(TASKS["classification"].recipe(epochs=1, precision="fp32"))
        executor = Inline(folder, answer, capacity)
        self.loop = loop = SearchLoop(
            space=self.space, data=self.data, scorer=self.scorer, short=lambda arch: recipe, proxies=None,
            storage=open_storage(folder), executor=executor, weights=ShortWeights(folder / "weights"), chance=chance,
        )  # fmt: skip
        study = loop.study("search", RandomFeasibleSampler(self.space, everything, seed=0))
        with SilentProgress().stage("") as bar:
            loop.run(study, Budget(1e9), 1e9, bar, at_most=trials)
        return study, executor


@pytest.fixture
def run(space: StagedSpace, model: LatencyModel, data: ImageData) -> Runner:
    return Runner(space, model, data)


def content(study: optuna.Study) -> list[tuple[int, dict[str, object], list[float] | None, TrialState]]:
    return [(t.number, t.params, t.values, t.state) for t in study.trials]


def dying_at(trial: int, answer: Answer = capacity_of) -> Answer:
    def die(task: Evaluation) -> Outcome | Failure:
        if task.trial == trial:
            raise KilledError
        return answer(task)

    return die


def test_the_time_of_an_image_is_that_of_training_not_of_validation(run: Runner, tmp_path: Path) -> None:
    """Where the training tells; where it does not, its whole time counts."""

    def answer(task: Evaluation) -> Outcome:
        return replace(capacity_of(task), image_s=0.25 if task.trial else None)

    study, _ = run(tmp_path, answer, trials=2)
    assert [result_of(trial).image_s for trial in study.trials] == [None, 0.25]
    untold, told = run.loop.evaluated(study)
    assert untold.seconds_per_image == pytest.approx(2.0 / len(run.data.train))
    assert told.seconds_per_image == pytest.approx(VALIDATED_ONCE * 0.25)


@pytest.mark.parametrize("trial", [0, 3, 5])
def test_a_killed_evaluation_is_made_again_under_its_number(run: Runner, tmp_path: Path, trial: int) -> None:
    plain, _ = run(tmp_path / "plain", capacity_of)
    with pytest.raises(KilledError):
        run(tmp_path / "killed", dying_at(trial))
    killed, executor = run(tmp_path / "killed", capacity_of)
    assert content(killed) == content(plain)
    assert [t.trial for t in executor.asked] == list(range(trial, 6)), "those before it are not asked for again"


def test_an_outcome_that_did_not_reach_the_study_is_found_in_the_journal(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = run(tmp_path / "plain", capacity_of)

    def killed_before_telling(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("nas.controller.loop.tell", killed_before_telling)
        with pytest.raises(KilledError):
            run(tmp_path / "killed", capacity_of)
    assert len(list((tmp_path / "killed" / "outcomes").iterdir())) == 1
    killed, executor = run(tmp_path / "killed", capacity_of)
    assert content(killed) == content(plain)
    assert [t.trial for t in executor.asked] == [1, 2, 3, 4, 5]
    assert list((tmp_path / "killed" / "outcomes").iterdir()) == []


def test_several_at_once_are_all_found_again(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        run(tmp_path, dying_at(4), capacity=3)
    study, executor = run(tmp_path, capacity_of, capacity=3, trials=8)
    assert sorted(t.number for t in study.trials) == list(range(8))
    assert all(t.state == TrialState.COMPLETE for t in study.trials)
    assert len({t.user_attrs["key"] for t in study.trials}) == 8
    assert sorted(t.trial for t in executor.asked)[-1] == 7


def test_ten_failures_in_a_row_stop_the_run(run: Runner, tmp_path: Path) -> None:
    def mostly_bad(task: Evaluation) -> Outcome | Failure:
        return capacity_of(task) if task.trial == 4 else Failure("killed by SIGSEGV while training")

    with pytest.raises(UserError, match="10 candidates in a row failed, the last one with: killed by SIGSEGV") as error:
        run(tmp_path, mostly_bad, trials=100)
    assert "study.db" in str(error.value.hint)
    study, _ = run(tmp_path, capacity_of, trials=0)
    states = [t.state for t in study.trials]
    assert states == [TrialState.FAIL] * 4 + [TrialState.COMPLETE] + [TrialState.FAIL] * 10
    assert study.trials[3].user_attrs["reason"] == "killed by SIGSEGV while training"


def test_trainings_that_were_stopped_early_are_pruned(run: Runner, tmp_path: Path) -> None:
    study, _ = run(tmp_path, lambda task: replace(capacity_of(task), stopped_early=task.trial % 2 == 1), trials=4)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED] * 2
    assert study.trials[1].values == [capacity_of_trial(study, 1)]


def capacity_of_trial(study: optuna.Study, number: int) -> float:
    value = study.trials[number].intermediate_values[2]
    assert 0 <= value <= 1
    return value


def test_an_exhausted_space_ends_the_arm_and_trains_nothing_twice(
    space: StagedSpace, model: LatencyModel, data: ImageData, tmp_path: Path
) -> None:
    fixed = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    tiny = space
    for decision, choice in zip(space.decisions[:-2], fixed.choices[:-2], strict=True):
        tiny = tiny.restrict(decision.name, [decision.options[choice]])
    study, executor = Runner(tiny, model, data)(tmp_path, capacity_of, trials=100)
    keys = [t.user_attrs["key"] for t in study.trials]
    assert len(executor.asked) == len(set(keys)) == tiny.size > 1
    assert len(keys) <= tiny.size + 10


def test_proposals_without_a_chance_are_not_trained_and_end_the_loop(run: Runner, tmp_path: Path) -> None:
    """Three in a row: the next one has the same fate. A process that goes on begins none either."""
    seen: list[int] = []

    def chance(evaluated: Sequence[Evaluated], arch: Architecture) -> bool:
        seen.append(len(evaluated))
        return len(seen) in (1, 2, 4)

    study, executor = run(tmp_path, capacity_of, trials=20, chance=chance)
    complete, pruned = TrialState.COMPLETE, TrialState.PRUNED
    assert [t.state for t in study.trials] == [complete, complete, pruned, complete, pruned, pruned, pruned]
    assert [t.trial for t in executor.asked] == [0, 1, 3]
    assert seen == [0, 1, 2, 2, 3, 3, 3]
    assert len(run.loop.evaluated(study)) == 3
    assert not run.loop.failed(study)
    assert "too small to become the finalist" in run.loop.remarks(study)[0]
    again, executor = run(tmp_path, capacity_of, trials=20, chance=chance)
    assert content(again) == content(study)
    assert not executor.asked
    assert len(seen) == 7


def test_where_all_have_a_chance_nothing_is_said(run: Runner, tmp_path: Path) -> None:
    study, executor = run(tmp_path, capacity_of, chance=lambda evaluated, arch: True)
    assert len(executor.asked) == 6
    assert run.loop.remarks(study) == []


def test_the_weights_of_the_best_are_kept(run: Runner, tmp_path: Path) -> None:
    study, _ = run(tmp_path, lambda task: replace(capacity_of(task), weights=b"w"), trials=KEPT + 4)
    done = [architecture_of(t, run.space) for t in study.get_trials(states=(TrialState.COMPLETE,))]
    assert len(done) == KEPT + 4
    evaluated = [
        Evaluated(arch, t.number, t.values[0], 1.0)
        for arch, t in zip(done, study.get_trials(states=(TrialState.COMPLETE,)), strict=True) if arch
    ]  # fmt: skip
    kept = {path.stem for path in (tmp_path / "weights" / "search").iterdir()}
    best = most_promising(evaluated, run.space, run.data.output_size)[:KEPT]
    assert kept == {network_name(e.arch.key) for e in best}
