"""The controller's parts on a device with a known latency function."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nas.controller.config import SearchConfig
from nas.controller.ladder import ladder, rungs_ms
from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import (
    DEPLOY_S,
    MOST_FINALISTS,
    FinalPlan,
    affordable_deployments,
    affordable_image_s,
    deployment_s,
    final_plan,
    final_time_s,
    nominal_image_s,
    schedule,
    short_training,
)
from nas.controller.planning.plan_record import read_final_plan, write_final_plan
from nas.controller.prediction.feasibility import DeploymentRange, examples, latency_ranges, require_feasible
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.preparation import searchable
from nas.controller.runs.run_folder import check_folder, opened
from nas.errors import InfeasibleError, UserError
from nas.limits import Limits
from nas.samplers import (
    RandomFeasibleSampler,
    SurrogateSampler,
    SurrogateSettings,
    WithExamples,
    architecture_of,
    random_feasible,
)
from nas.samplers.base import row_ids
from nas.targets.latency import Z_90, LatencyModel
from nas.tasks import TASKS
from search_spaces import Choices, StagedSpace, load_search_space
from tests.nas.fake_device import fake_profile, true_latency_ms

LIMIT_MS = 0.6
SHAPE = TASKS["classification"].shape
RECIPE = TASKS["classification"].recipe()


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mixed").restrict("resolution", [64, 128])


@pytest.fixture(scope="module")
def model() -> LatencyModel:
    return LatencyModel(fake_profile())


@pytest.fixture
def scorer(space: StagedSpace, model: LatencyModel) -> CandidateScorer:
    return CandidateScorer(space, model, Limits.of(latency_ms=LIMIT_MS), (10,))


def objective(space: StagedSpace, choices: np.ndarray) -> np.ndarray:
    """A known accuracy: more capacity at high resolution is better."""
    costs = space.costs(choices, (10,))
    return 0.05 * np.log(costs["params"]) + 0.02 * np.log(space.resolutions(choices))  # type: ignore[no-any-return]


def run_study(
    space: StagedSpace, sampler: optuna.samplers.BaseSampler, trials: int, storage: str | None = None
) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=sampler, storage=storage, study_name="s", load_if_exists=True
    )
    for _ in range(trials):
        trial = study.ask()
        arch = space.suggest(trial)
        study.tell(trial, float(objective(space, space.choices([arch]))[0]))
    return study


def test_proposals_keep_the_limit_and_do_not_repeat(space: StagedSpace, scorer: CandidateScorer) -> None:
    study = run_study(space, SurrogateSampler(space, scorer.feasible, seed=1), 12)
    archs = [architecture_of(t, space) for t in study.trials]
    assert len({a.key for a in archs if a}) == 12
    for arch in archs:
        assert arch is not None
        truth = true_latency_ms(space.costs(space.choices([arch]), (10,)), 2.0)[0]
        assert truth <= 1.1 * LIMIT_MS
    assert scorer.scored > 10_000


def test_the_sampler_beats_random_with_the_same_evaluations(space: StagedSpace, scorer: CandidateScorer) -> None:
    gains = []
    for seed in range(3):
        ours = run_study(
            space, SurrogateSampler(space, scorer.feasible, settings=SurrogateSettings(startup=5), seed=seed), 14
        )
        random = run_study(space, RandomFeasibleSampler(space, scorer.feasible, seed=seed), 14)
        gains.append(ours.best_value - random.best_value)
    assert np.mean(gains) > 0


def test_the_state_is_the_storage(space: StagedSpace, scorer: CandidateScorer, tmp_path: Path) -> None:
    whole = run_study(space, SurrogateSampler(space, scorer.feasible, seed=3), 9, f"sqlite:///{tmp_path}/a.db")
    run_study(space, SurrogateSampler(space, scorer.feasible, seed=3), 5, f"sqlite:///{tmp_path}/b.db")
    rest = run_study(space, SurrogateSampler(space, scorer.feasible, seed=3), 4, f"sqlite:///{tmp_path}/b.db")
    assert [t.params for t in whole.trials] == [t.params for t in rest.trials]


def test_random_candidates_are_found_under_a_tight_limit(space: StagedSpace, model: LatencyModel) -> None:
    sampled = space.sample(4000, np.random.default_rng(0))
    tight = float(np.quantile(model.fastest(space, sampled, (10,))[1].mean, 0.002))
    feasible = CandidateScorer(space, model, Limits.of(latency_ms=tight), (10,)).feasible
    found = random_feasible(space, feasible, 16, np.random.default_rng(1))
    assert len(found) == 16
    assert feasible(found).all()


def test_the_tightest_limit_that_can_be_kept_can_be_searched_under(space: StagedSpace, model: LatencyModel) -> None:
    def scorer(**limits: float) -> CandidateScorer:
        return CandidateScorer(space, model, Limits.of(**limits), (10,))  # type: ignore[arg-type]

    rng = np.random.default_rng
    ranges = latency_ranges(space, model, Limits.of(latency_ms=1.0), (10,), rng(0))
    tight = scorer(latency_ms=1.02 * min(r.min_ms for r in ranges))
    with pytest.raises(InfeasibleError, match="random networks"):
        random_feasible(space, tight.feasible, 1, rng(1))
    found = examples(tight, rng(0))
    assert found is not None
    feasible = WithExamples(tight.feasible, found)
    proposed = random_feasible(space, feasible, 8, rng(1), row_ids(found))
    assert len(proposed) == 8
    assert tight.feasible(proposed).all()
    assert not np.isin(row_ids(proposed), row_ids(found)).any(), "others than those it began from"
    easy = examples(scorer(latency_ms=LIMIT_MS), rng(0))
    assert easy is not None
    assert not len(easy), "random ones keep it as well"

    def nothing(choices: Choices) -> NDArray[np.bool_]:
        return np.zeros(len(choices), dtype=np.bool_)

    assert examples(tight.asking(nothing), rng(0)) is None
    asked, again, remark = searchable(tight, nothing, 0)
    assert len(again), "a network that trains slowly is better than none"
    assert asked.feasible(again).all()
    assert remark is not None
    assert asked.affordable is None
    assert searchable(scorer(latency_ms=LIMIT_MS), None, 0)[2] is None


def test_samplers_take_turns_on_the_ladder(space: StagedSpace, model: LatencyModel, scorer: CandidateScorer) -> None:
    rungs = rungs_ms(scorer, 0)
    assert len(rungs) == 4
    sampler = ladder(scorer, 0, lambda feasible: RandomFeasibleSampler(space, feasible, seed=1))
    study = run_study(space, sampler, 8)
    archs = [architecture_of(t, space) for t in study.trials]
    predictions = model.fastest(space, space.choices([a for a in archs if a]), (10,))[1]
    upper = predictions.mean + Z_90 * predictions.std
    assert (upper <= np.minimum(LIMIT_MS, rungs * 2)).all()
    assert upper[[0, 4]].max() > max(rungs[3], rungs[1])


def test_feasibility(space: StagedSpace, model: LatencyModel) -> None:
    def check(limit_ms: float) -> tuple[DeploymentRange, ...]:
        limits = Limits.of(latency_ms=limit_ms)
        ranges = latency_ranges(space, model, limits, (10,), np.random.default_rng(0))
        require_feasible(ranges, CandidateScorer(space, model, limits, (10,)), "fake", np.random.default_rng(0))
        return ranges

    ranges = check(LIMIT_MS)
    assert all(r.min_ms < r.median_ms < r.max_ms for r in ranges)
    assert all(r.satisfiable == (r.min_ms <= LIMIT_MS) for r in ranges)
    with pytest.raises(InfeasibleError) as error:
        check(1e-3)
    assert error.value.exit_code == 3
    assert " keeps " in str(error.value)
    assert "profile" not in (error.value.hint or "")
    named = float(str(error.value).split("nearest feasible limit is ")[1].split(" ms")[0])
    check(named)
    tightest = min(ranges, key=lambda r: r.min_ms)
    assert tightest.expected_ms < tightest.min_ms
    with pytest.raises(InfeasibleError, match="is sure to keep") as error:
        check(min(r.expected_ms for r in ranges) * 1.001)
    assert "`nas profile`" in (error.value.hint or ""), "a network may keep it: what is known is too coarse"


def test_descents_from_different_samples_agree_on_the_fastest(space: StagedSpace, model: LatencyModel) -> None:
    """A limit is refused by what a descent finds, so no other descent may find a much faster network."""
    limits = Limits.of(latency_ms=LIMIT_MS)
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        found.append(min(r.min_ms for r in latency_ranges(space, model, limits, (10,), rng)))
    assert max(found) <= 1.02 * min(found)


def test_limits_in_combination(space: StagedSpace, model: LatencyModel) -> None:
    def check(**limits: float) -> None:
        given = Limits.of(**limits)  # type: ignore[arg-type]
        ranges = latency_ranges(space, model, given, (10,), np.random.default_rng(0))
        require_feasible(ranges, CandidateScorer(space, model, given, (10,)), "fake", np.random.default_rng(0))

    check(latency_ms=LIMIT_MS, max_params=5e5)
    with pytest.raises(
        InfeasibleError, match=r"nearest feasible limit is .* parameters with the other limits kept"
    ) as e:
        check(latency_ms=LIMIT_MS, max_params=100)
    assert "--max-params" in (e.value.hint or "")
    named = float(str(e.value.hint).split("--max-params ")[1].split()[0])
    check(latency_ms=LIMIT_MS, max_params=named)
    with pytest.raises(InfeasibleError, match="together") as e:
        check(latency_ms=1e-3, max_params=100)
    words = str(e.value.hint).removeprefix("ask for ").split()
    named_together = {o[2:].replace("-", "_"): float(v) for o, v in zip(words[::2], words[1::2], strict=True)}
    assert set(named_together) == {"latency_ms", "max_params"}
    check(**named_together)
    with pytest.raises(InfeasibleError, match="images/s"):
        check(throughput=1e7)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_that_make_no_sense(value: float) -> None:
    with pytest.raises(UserError, match="makes no sense"):
        SearchConfig(limits=Limits.of(latency_ms=value))
    with pytest.raises(UserError, match="makes no sense"):
        SearchConfig(limits=Limits.of(latency_ms=1.0), budget_s=value)


def test_budget_accounts_for_stages() -> None:
    now = [0.0]
    budget = Budget(10.0, clock=lambda: now[0])
    with budget.stage("a"):
        now[0] = 3.0
    with budget.stage("b"), budget.stage("a"):
        now[0] = 4.0
    assert budget.account() == {"a": 4.0, "b": 1.0, "total": 4.0}
    assert budget.left_s == 6.0
    now[0] = 12.0
    assert budget.left_s == -2.0, "overdrawn"


def test_the_search_leaves_as_much_time_for_its_random_baseline() -> None:
    deadlines = schedule(20.0, 120.0, baselines=True)
    assert deadlines.search_until_s - 20 <= (120 - 20) / 2
    assert 20 < deadlines.search_short_until_s < deadlines.search_until_s
    alone = schedule(20.0, 120.0, baselines=False)
    assert alone.search_until_s > deadlines.search_until_s
    assert (alone.search_until_s - 20) / (120 - 20) >= 0.9, "the budget belongs to the winner"
    assert alone.search_until_s - alone.search_short_until_s > alone.search_short_until_s - 20


def test_a_finalist_is_trained_as_long_as_it_was_briefly_as_far_as_the_budget_reaches() -> None:
    assert final_time_s(300.0, 40.0, 1000.0, 5) == 300.0, "as planned"
    given = final_time_s(20.0, 40.0, 1000.0, 5)
    plan = final_plan(RECIPE, 100.0, given, 5, shape=SHAPE)
    assert plan.recipe.time_limit_s == pytest.approx(40.0), "what was planned was used up: the baselines' time"
    assert 20.0 < final_time_s(20.0, 40.0, 60.0, 5) < 60.0, "never more than there is"
    assert final_time_s(5.0, 40.0, -3.0, 5) == 5.0


def test_a_short_budget_tries_fewer_deployments_and_trains_longer() -> None:
    assert [affordable_deployments(seconds, 4) for seconds in (-3.0, 12.0, 25.0, 38.0, 50.0)] == [2, 2, 2, 3, 4]
    assert affordable_deployments(5.0, 1) == 1
    assert deployment_s(0.0, 0) == deployment_s(0.0, 0, 30.0) == DEPLOY_S
    assert deployment_s(0.0, 300) == pytest.approx(DEPLOY_S + 3 * 4 * 0.3), "slow calls are timed five times as long"
    assert deployment_s(0.0, 300, 30.0) == pytest.approx(DEPLOY_S + 3 * (9.0 - 0.3)), "or as long as 300 calls take"
    assert deployment_s(50.0, 0) < deployment_s(50.0, 100) < deployment_s(100.0, 100)
    assert affordable_deployments(50.0, 4, deployment_s(50.0, 0)) == 2
    slow_calls_s = deployment_s(50.0, 100)
    assert [affordable_deployments(seconds, 4, slow_calls_s) for seconds in (19.0, 45.0, 61.0, 200.0)] == [1, 1, 2, 4]
    assert affordable_image_s(25.0, 1000, 4, SHAPE) == affordable_image_s(25.0, 1000, 2, SHAPE)


def test_what_is_tried_in_a_short_budget_is_fast_and_one_of_it_rounds_no_weights(
    space: StagedSpace, scorer: CandidateScorer, model: LatencyModel, tmp_path: Path
) -> None:
    archs = [space.architecture(row) for row in space.sample(40, np.random.default_rng(0))]
    seen = set()
    for arch in archs:
        ratios = scorer.ratios(space.choices([arch])).max(axis=0)[:, 0]
        kept = {d for d, ratio in zip(model.deployments, ratios, strict=True) if ratio <= 1}
        tried = scorer.worth_trying(arch, 2)
        fastest = min(model.deployments, key=lambda d: scorer.predicted(arch, d).mean_ms)
        assert fastest in tried
        assert len(tried) == 2
        both = len({d.precision == "int8" for d in kept}) == 2
        assert len({d.precision == "int8" for d in tried}) == 2 or not both
        seen.add(both)
    assert seen == {True, False}, "all cases stand in the sample"
    plan = FinalPlan(RECIPE, 1, tuple(d.name for d in tried), full_image_s=0.02)
    assert plan.deployments(model.deployments) == tuple(tried)
    folder = check_folder(SearchConfig(limits=Limits.of(latency_ms=1.0), out=tmp_path / "run"))
    folder.path.mkdir()
    write_final_plan(folder, plan)
    assert read_final_plan(folder) == plan


def test_recipes_follow_the_time() -> None:
    recipe = RECIPE
    rich, poor = (short_training(recipe, 10_000, lambda batch: 1e-3, seconds, SHAPE) for seconds in (160.0, 5.0))
    assert (rich.recipe.epochs, rich.train_images) == (4, None)
    assert (poor.recipe.epochs, poor.train_images) == (2, 2500)
    slow = short_training(recipe, 10_000, lambda batch: 2e-3, 5.0, SHAPE)
    assert slow.train_images == 1250, "a network that trains half as fast sees half as much in the same time"
    long, short = (final_plan(recipe, 10.0, seconds, 5, shape=SHAPE) for seconds in (1000.0, 100.0))
    assert (long.size, short.size) == (2, 1)
    assert long.recipe.epochs > short.recipe.epochs >= 5
    spent = final_plan(recipe, 10.0, -3.0, 5, shape=SHAPE)
    assert spent.recipe.time_limit_s == 5.0, "nothing left: the clock ends the training"
    assert final_plan(recipe, 10.0, 1300.0, 5, wanted=3, shape=SHAPE).size == 3
    assert affordable_image_s(200.0, 1000, 5, SHAPE) > affordable_image_s(100.0, 1000, 5, SHAPE) > 0


@given(
    epoch_s=st.floats(1e-3, 1e3),
    available_s=st.floats(1.0, 1e6),
    deployments=st.integers(1, 10),
    wanted=st.integers(1, 5),
)
def test_more_finalists_than_wanted_cost_no_epoch(
    epoch_s: float, available_s: float, deployments: int, wanted: int
) -> None:
    plan = final_plan(RECIPE, epoch_s, available_s, deployments, wanted, shape=SHAPE)
    usual = final_plan(RECIPE, epoch_s, available_s, deployments, wanted, most=wanted, shape=SHAPE)
    assert plan.recipe.epochs == usual.recipe.epochs
    assert usual.size <= plan.size <= max(wanted, MOST_FINALISTS)
    if plan.size > usual.size:
        assert plan.recipe.epochs == SHAPE.final_epochs[1]
        assert plan.size * plan.recipe.epochs * epoch_s <= available_s


@given(epoch_s=st.floats(1e-3, 1e2), available_s=st.floats(1.0, 1e6), deployments=st.integers(1, 10))
def test_time_that_the_longest_last_round_cannot_use_is_told(
    epoch_s: float, available_s: float, deployments: int
) -> None:
    plan = final_plan(RECIPE, epoch_s, available_s, deployments, shape=SHAPE)
    whole_s = MOST_FINALISTS * (SHAPE.final_epochs[1] * epoch_s + DEPLOY_S * deployments)
    assert plan.spare_s == pytest.approx(max(0.0, available_s - whole_s))
    if plan.spare_s:
        assert (plan.size, plan.recipe.epochs) == (MOST_FINALISTS, SHAPE.final_epochs[1])


def test_few_images_are_worth_one_finalist_with_all_epochs() -> None:
    """With 2,700 images 45 epochs each show no network enough; with 25,000 they do."""
    for images, size in ((2_700, 1), (25_000, 2)):
        plan = final_plan(RECIPE, 10.0, 1000.0, 5, shape=SHAPE.for_examples(images))
        assert plan.size == size
    assert SHAPE.for_examples(25_000) == SHAPE
    assert final_plan(RECIPE, 10.0, 2000.0, 5, shape=SHAPE.for_examples(2_700)).size == 2


def test_time_left_over_trains_more_finalists() -> None:
    shape = replace(SHAPE, final_epochs=(5, 40))
    assert final_plan(RECIPE, 5.0, 1140.0, 5, shape=shape).size == 5
    assert final_plan(RECIPE, 5.0, 500.0, 5, shape=shape).size == 2


@pytest.mark.parametrize("at_once", [2, 4, 100])
def test_finalists_that_are_trained_side_by_side_share_the_deployments_time_alone(at_once: int) -> None:
    shape = replace(SHAPE, final_epochs=(5, 40))
    alone = final_plan(RECIPE, 5.0, 500.0, 5, shape=shape)
    plan = final_plan(RECIPE, 5.0, 500.0, 5, shape=shape, at_once=at_once)
    limit_s = plan.recipe.time_limit_s
    assert limit_s is not None
    assert plan.size > alone.size
    rounds = math.ceil(plan.size / at_once)
    assert rounds * limit_s + plan.size * 5 * DEPLOY_S <= 500.0 + 1e-6


@given(epoch_s=st.floats(1e-2, 10.0), available_s=st.floats(60.0, 1e5), wanted=st.integers(1, 3))
def test_the_time_for_finalists_is_all_used_and_not_more(epoch_s: float, available_s: float, wanted: int) -> None:
    plan = final_plan(RECIPE, epoch_s, available_s, 5, wanted, shape=SHAPE)
    limit_s = plan.recipe.time_limit_s
    assert limit_s is not None
    assert plan.size * (limit_s + 5 * DEPLOY_S) <= available_s + 1e-6
    if plan.recipe.epochs < SHAPE.final_epochs[1]:
        assert plan.size * (limit_s + 5 * DEPLOY_S) == pytest.approx(available_s), "the clock ends the trainings"


def test_batches_become_smaller_where_steps_are_few_and_fewer_images_fit() -> None:
    recipe = RECIPE.changed(batch_size=64, least_steps=100)
    asked: list[int] = []

    def image_s(batch: int) -> float:
        asked.append(batch)
        return 1e-3 * (1 + 16 / batch)

    short = short_training(recipe, 10_000, image_s, 4.0, SHAPE)
    images = short.train_images or 10_000
    assert asked[-1] == short.recipe.batch_for(images) < 64
    assert images * short.recipe.epochs * image_s(asked[-1]) <= 4.0


def test_nominal_training_time_grows_with_the_network(space: StagedSpace) -> None:
    costs = space.costs(space.choices(list(space.anchors)), (10,))
    one = nominal_image_s(costs)
    larger = {name: 2 * value for name, value in costs.items()}
    assert nominal_image_s(larger) == pytest.approx(2 * one)
    assert (one > 0).all()


def test_run_folders(tmp_path: Path) -> None:
    config = SearchConfig(limits=Limits.of(latency_ms=4.0), out=tmp_path / "run")
    folder = check_folder(config)
    assert not folder.path.exists(), "checking writes nothing"
    with opened(config, folder), pytest.raises(UserError, match="another process works on"), opened(config, folder):
        pass
    assert json.loads(folder.config.read_text())["limits"] == {"latency_ms": 4.0, "percentile": 50}
    check_folder(replace(config, budget_s=1.0))
    with pytest.raises(UserError, match=r"another configuration \(latency_ms was 4.0, is 5.0\)"):
        check_folder(replace(config, limits=Limits.of(latency_ms=5.0)))
    with pytest.raises(UserError, match="task was 'classification', is 'detection'"):
        check_folder(replace(config, task="detection", space="", data="here"))
    recorded = json.loads(folder.config.read_text())
    del recorded["sampler"], recorded["max_drop"]
    folder.config.write_text(json.dumps(recorded))
    check_folder(config)  # of a version that had no such settings: it did what is the default now
    with pytest.raises(UserError, match="sampler was 'surrogate', is 'tpe'"):
        check_folder(replace(config, sampler="tpe"))
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "lock").touch()
    check_folder(replace(config, out=tmp_path / "begun"))  # killed before it wrote anything
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(UserError, match="not empty"):
        check_folder(replace(config, out=tmp_path / "other"))
    with pytest.raises(UserError, match="is a file"):
        check_folder(replace(config, out=tmp_path / "other" / "file"))
