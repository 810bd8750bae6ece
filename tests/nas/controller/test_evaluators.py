"""Candidates that are evaluated without a training: the records, the rule's inputs, and searches that go on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.trial import TrialState

from nas.controller.config import SearchConfig
from nas.controller.evaluators import (
    MOST_ESTIMATES,
    Evaluator,
    SingleEstimator,
    TrainThenPredict,
    labels_wanted,
    make_evaluator,
    most_candidates,
    prepared_s,
)
from nas.controller.inputs import check_estimator as check_asked
from nas.controller.loop import SearchLoop
from nas.controller.new_limits import check_estimator as check_against
from nas.controller.planning.budget import Budget
from nas.controller.planning.estimator_choice import (
    estimator_choice,
    planned_phase_s,
    read_choice,
    remarks,
    supernet_image_s,
    typical_short_s,
)
from nas.controller.planning.plan import estimate, wanted_finalists
from nas.controller.planning.recipes import Recipes
from nas.controller.planning.throughput import TrainingThroughput
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.runs.run_folder import RunFolder
from nas.controller.runs.storage import open_storage
from nas.controller.values import Evaluated
from nas.errors import UnknownNameError, UserError
from nas.evaluation.estimate import Estimate, Unit
from nas.evaluation.estimators import EstimatorSetting, PredictorEstimator
from nas.evaluation.short_training import ShortTraining
from nas.evaluation.supernet.config import SupernetConfig, supernet_recipe
from nas.executors import Outcome
from nas.limits import Limits
from nas.progress import SilentProgress
from nas.samplers import RandomFeasibleSampler
from nas.targets.latency import LatencyModel
from nas.tasks import TASKS
from search_spaces import Architecture, Choices, StagedSpace, load_search_space
from tests.nas.controller.test_loop import Inline, KilledError, capacity_of, content, everything
from tests.nas.evaluation.small import coloured_images, small_space
from tests.nas.executors.tasks import RESOLUTION, tiny_data
from tests.nas.fake_device import fake_profile

DATA = tiny_data()
RECIPE = ShortTraining(TASKS["classification"].recipe(epochs=1, precision="fp32"))


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mobile").restrict("resolution", [RESOLUTION])


@pytest.fixture(scope="module")
def scorer(space: StagedSpace) -> CandidateScorer:
    return CandidateScorer(space, LatencyModel(fake_profile()), Limits.of(latency_ms=50.0), DATA.output_size)


class Sizes:
    """Believes in large networks. Its n-th estimate may be the one it is killed at, or the one it has no value for."""

    unit: Unit = "standard deviations"
    prepared_s = 0.0

    def __init__(self, space: StagedSpace, killed_at: int = -1, without: int = -1) -> None:
        self.space, self.killed_at, self.without, self.asked = space, killed_at, without, 0

    def estimate(self, archs: Sequence[Architecture]) -> list[Estimate]:
        self.asked += 1
        if self.asked == self.killed_at:
            raise KilledError
        (arch,) = archs
        if self.asked == self.without:
            return [Estimate(arch=arch, value=None, seconds=0.1, failure="no score exists for this network")]
        params = float(self.space.costs(self.space.choices([arch]), (10,))["params"][0])
        return [Estimate(arch=arch, value=np.log(params), seconds=0.1)]


def run(
    folder: Path, scorer: CandidateScorer, evaluator: Evaluator, executor: Inline | None, trials: int
) -> tuple[SearchLoop, optuna.Study]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    loop = SearchLoop(
        space=scorer.space, data=DATA, scorer=scorer, short=lambda arch: RECIPE, proxies=None,
        storage=open_storage(folder), executor=executor, evaluator=evaluator,
    )  # fmt: skip
    study = loop.study("search", RandomFeasibleSampler(scorer.space, everything, seed=0))
    with SilentProgress().stage("") as bar:
        loop.run(study, Budget(1e9), 1e9, bar, at_most=trials)
    return loop, study


def test_estimates_are_recorded_as_what_they_are(scorer: CandidateScorer, tmp_path: Path) -> None:
    estimator = Sizes(scorer.space, without=2)
    loop, study = run(tmp_path, scorer, SingleEstimator("zero-cost", lambda told: estimator), None, trials=3)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert [f.reason for f in loop.failed(study)] == ["no score exists for this network"]
    for e in loop.evaluated(study):
        assert (e.estimator, e.interval, e.seconds, e.seconds_per_image) == ("zero-cost", None, 0.1, None)
        assert e.value > 1
        assert e.accuracy is None, "a score is no accuracy"
        assert e.short_accuracy is None


def test_a_kill_between_estimates_changes_nothing(scorer: CandidateScorer, tmp_path: Path) -> None:
    def evaluator(**changes: int) -> SingleEstimator:
        return SingleEstimator("zero-cost", lambda told: Sizes(scorer.space, **changes))

    _, plain = run(tmp_path / "plain", scorer, evaluator(), None, trials=3)
    with pytest.raises(KilledError):
        run(tmp_path / "killed", scorer, evaluator(killed_at=2), None, trials=3)
    _, killed = run(tmp_path / "killed", scorer, evaluator(), None, trials=3)
    assert content(killed) == content(plain)


def predicting(space: StagedSpace) -> TrainThenPredict:
    return TrainThenPredict(space, lambda labels: PredictorEstimator(space, labels), labels=4)


def test_a_predictor_takes_over_from_short_trainings(scorer: CandidateScorer, tmp_path: Path) -> None:
    executor = Inline(tmp_path, capacity_of)
    loop, study = run(tmp_path, scorer, predicting(scorer.space), executor, trials=5)
    assert [t.trial for t in executor.asked] == [0, 1, 2, 3]
    evaluated = loop.evaluated(study)
    assert [e.estimator for e in evaluated] == ["short"] * 4 + ["predictor"]
    for e in evaluated:
        assert e.interval is not None
        assert e.interval[0] <= e.value <= e.interval[1]
        assert e.accuracy == e.value
        assert (e.short_accuracy is None) == (e.seconds_per_image is None) == (e.estimator == "predictor")

    def killed(task: object) -> Outcome:
        raise KilledError

    again = Inline(tmp_path, killed)
    loop, study = run(tmp_path, scorer, predicting(scorer.space), again, trials=6)
    assert again.asked == [], "the labels are found in the study"
    assert loop.evaluated(study)[:5] == evaluated
    assert loop.evaluated(study)[5].estimator == "predictor"
    random_baseline = loop.study("random", RandomFeasibleSampler(scorer.space, everything, seed=1))
    assert predicting(scorer.space)(random_baseline) is None, "who learns from random networks of its own"


def test_a_supernet_is_trained_once_and_found_again(tmp_path: Path) -> None:
    space, data = small_space("dense"), coloured_images(train=16, val=16)
    config = SupernetConfig(
        steps=1,
        random_paths=0,
        recipe=supernet_recipe(RECIPE.recipe).changed(batch_size=8, augmentation={"flip": False}),
    )
    setting = EstimatorSetting(
        space=space, data=data, short=lambda arch: RECIPE, supernet=config, device="cpu",
        checkpoint=tmp_path / "supernet.safetensors",
    )  # fmt: skip
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    found = []
    for _ in range(2):
        evaluator = make_evaluator("supernet", setting, None)
        assert isinstance(evaluator, SingleEstimator)
        name, estimator = evaluator(optuna.create_study())
        assert name == "supernet"
        (told,) = estimator.estimate([arch])
        assert told.interval is not None
        found.append((told.value, prepared_s(evaluator)))
    assert found[0] == found[1], "the second time it is read, and not a step is added"


def test_how_many_candidates() -> None:
    assert [most_candidates(name, 12) for name in ("short", "zero-cost", "predictor")] == [12, 12, 12]
    assert most_candidates("short", None) is None
    assert most_candidates("zero-cost", None) == MOST_ESTIMATES < (most_candidates("predictor", None) or 0)
    assert [labels_wanted(trials) for trials in (3, 6, 9, 100, None)] == [4, 4, 6, 8, 8]
    assert wanted_finalists("accuracy", 1, trained=False) > wanted_finalists("accuracy", 1)


def test_the_supernet_has_its_place_in_the_plan() -> None:
    planned = estimate(10.0, 110.0, 5.0, None, baselines=True, phase="estimates", supernet_s=8.0)
    assert planned["supernet"] == 8.0
    assert "short_training" not in planned
    assert planned["estimates"] + 8.0 == estimate(10.0, 110.0, 5.0, None, baselines=True)["short_training"]


# -- the choice --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipes(space: StagedSpace) -> Recipes:
    config = SearchConfig(limits=Limits.of(latency_ms=50), budget_s=150.0)
    return Recipes(
        config=config,
        space=space,
        data=DATA,
        base=TASKS["classification"].recipe(precision="fp32"),
        throughput=TrainingThroughput("cpu", "fp32", 0.5),
    )


def all_of(choices: Choices) -> NDArray[np.bool_]:
    return np.ones(len(choices), dtype=np.bool_)


def test_the_choice_is_recorded_and_stays(recipes: Recipes, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    choice = estimator_choice("supernet", folder, recipes, all_of, 20.0, 0)
    assert (choice.name, choice.why) == ("supernet", "asked for")
    assert read_choice(folder) == choice
    assert estimator_choice("auto", folder, recipes, all_of, 5.0, 0) == choice, "another budget, the same values"


def test_a_supernet_is_planned_by_nominal_times(recipes: Recipes, tmp_path: Path) -> None:
    steps = []
    for name in ("150.0", "1500.0", "None"):
        (tmp_path / name).mkdir()
    for budget_s in (150.0, 1500.0, None):
        config = SearchConfig(limits=Limits.of(latency_ms=50), budget_s=budget_s, max_trials=5)
        asked = replace(recipes, config=config)
        left_s = float("inf") if budget_s is None else planned_phase_s(asked)
        supernet = estimator_choice("supernet", RunFolder(tmp_path / str(budget_s)), asked, all_of, left_s, 0).supernet
        assert supernet is not None
        step_s = supernet.recipe.fixed_batch_size * supernet_image_s(asked, all_of)
        assert supernet.steps == max(1, int(0.6 * planned_phase_s(asked) / step_s))
        assert (supernet.recipe.time_limit_s is None) == (budget_s is None), (
            "without a time nothing depends on the clock"
        )
        steps.append(supernet.steps)
    assert steps[0] < steps[1]


def test_auto_gives_its_reason(recipes: Recipes, tmp_path: Path) -> None:
    choice = estimator_choice("auto", RunFolder(tmp_path), recipes, all_of, 20.0, 0)
    assert "s for estimates on" in choice.why
    assert "short trainings of about" in choice.why
    assert typical_short_s(recipes, all_of) > 0
    asked = replace(recipes, config=replace(recipes.config, budget_s=1e-3))
    (tmp_path / "starved").mkdir()
    starved = estimator_choice("auto", RunFolder(tmp_path / "starved"), asked, all_of, 20.0, 0)
    assert starved.name == "short", "there is no time for scores either"
    slow = replace(
        recipes, config=replace(recipes.config, budget_s=200.0), throughput=TrainingThroughput("cpu", "fp32", 1e5)
    )
    (tmp_path / "slow").mkdir()
    assert estimator_choice("auto", RunFolder(tmp_path / "slow"), slow, all_of, 80.0, 0).name == "short"
    (tmp_path / "scored").mkdir()
    scored = estimator_choice("zero-cost", RunFolder(tmp_path / "scored"), slow, all_of, 80.0, 0)
    assert "nothing was trained before the last round" in remarks(scored, 100, None)[0]


def test_what_a_reader_is_told_of_a_short_lived_supernet(recipes: Recipes, tmp_path: Path) -> None:
    choice = estimator_choice("supernet", RunFolder(tmp_path), recipes, all_of, 20.0, 0)
    (remark,) = remarks(choice, 10**6, None)
    assert "nothing is known of an order after fewer than 20" in remark
    (remark,) = remarks(choice, 1, None)
    assert "nothing is known" not in remark


def test_refusals(tmp_path: Path, recipes: Recipes) -> None:
    with pytest.raises(UnknownNameError, match="supernett"):
        check_asked(SearchConfig(limits=Limits.of(latency_ms=1), estimator="supernett"))
    with pytest.raises(UserError, match="--asha stops short trainings early"):
        check_asked(SearchConfig(limits=Limits.of(latency_ms=1), estimator="zero-cost", asha=True, ray="auto"))
    folder = RunFolder(tmp_path)
    check_against(folder, "predictor")  # a run that chose no estimator yet trained its candidates
    with pytest.raises(UserError, match="evaluated by 'short', which does not go with 'supernet'"):
        check_against(folder, "supernet")
    estimator_choice("zero-cost", folder, recipes, all_of, 20.0, 0)
    check_against(folder, None)
    check_against(folder, "auto")
    with pytest.raises(UserError, match="evaluated by 'zero-cost', which does not go with 'short'"):
        check_against(folder, "short")


def test_values_are_accuracies_only_where_the_estimator_says_so() -> None:
    arch = Architecture("s", (0,))
    by = {
        name: Evaluated(arch, 0, 0.5, 1.0, estimator=name) for name in ("short", "supernet", "predictor", "zero-cost")
    }
    assert [e.accuracy for e in by.values()] == [0.5, 0.5, 0.5, None]
    assert [e.short_accuracy for e in by.values()] == [0.5, None, None, None]
