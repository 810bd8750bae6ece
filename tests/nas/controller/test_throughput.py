"""How fast the training device is: measured once, read afterwards, forgotten where trainings show that it is wrong."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nas.controller.config import SearchConfig
from nas.controller.new_limits import take_over
from nas.controller.planning import throughput as throughput_module
from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import FinalPlan, nominal_image_s, nominal_update_s
from nas.controller.planning.plan_record import search_plan
from nas.controller.planning.recipes import OVERHEAD, Recipes
from nas.controller.planning.throughput import (
    TrainingThroughput,
    fitted_steps,
    forget_wrong_throughput,
    host_throughput,
    rounded,
    training_device,
)
from nas.controller.planning.training_times import doubt_throughput, plan_last_round
from nas.controller.preparation import busy
from nas.controller.promise import promise
from nas.controller.runs.records import Trained
from nas.controller.runs.run_folder import RunFolder
from nas.controller.values import Evaluated
from nas.executors.executor import hangs_after_s
from nas.limits import Limits
from nas.tasks import TASKS
from nas.training import setup
from nas.training.setup import Setup, fastest
from search_spaces import load_search_space
from tests.nas.executors.tasks import images, tiny_data

SPACE = load_search_space("mobile").restrict("resolution", [32])
DEVICE = training_device()
RECIPE = TASKS["classification"].recipe().changed(batch_size=4)
SLOW = TrainingThroughput(DEVICE, "fp32", 4.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few networks are timed, in few steps: what they take is not asserted."""
    monkeypatch.setattr(throughput_module, "QUANTILES", (0.1,))
    monkeypatch.setattr(throughput_module, "STEPS", 1)
    monkeypatch.setattr(throughput_module, "is_crowded", lambda *_: False)  # whatever else runs here


def cached(folder: Path) -> Path:
    """The one file of the cache."""
    (file,) = (folder / "training-throughput").iterdir()
    return file


def test_steps_of_the_optimiser_are_timed_on_the_smallest_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orthogonal steps of the largest take seconds each on a slow processor."""
    monkeypatch.setattr(throughput_module, "QUANTILES", (0.1, 0.5, 0.9))
    monkeypatch.setattr(throughput_module, "UPDATES_S", 0.0)
    timed: list[int] = []

    def seconds(network: nn.Module, *arguments: Any, **options: Any) -> float:
        timed.append(sum(p.numel() for p in network.parameters()))
        return 1e-6 * timed[-1]  # a busy machine would now and then take longer for the smaller one

    monkeypatch.setattr(setup, "update_seconds", seconds)
    assert host_throughput(SPACE, (10,), RECIPE, tmp_path).update_s > 0
    sampled = SPACE.sample(256, np.random.default_rng(0))
    assert len(timed) == throughput_module.LEAST_UPDATES
    assert max(timed) <= np.median(SPACE.costs(sampled, (10,))["params"])


def test_a_throughput_is_measured_once_and_then_read(tmp_path: Path) -> None:
    first = host_throughput(SPACE, (10,), RECIPE, tmp_path)
    assert first.precision in ("fp32", "bf16")
    assert first.step_s + first.update_s > 0, "Muon computes much"
    for seconds in (first.work_s, first.step_s, first.update_s):
        assert seconds == rounded(seconds)
    assert first.device == DEVICE
    file = cached(tmp_path)
    document = json.loads(file.read_text())
    other = TrainingThroughput(DEVICE, "bf16" if first.precision == "fp32" else "fp32", 8.0, 0.25)
    file.write_text(json.dumps({**document, **other.to_json(), "measured_at": document["measured_at"]}))
    assert host_throughput(SPACE, (10,), RECIPE, tmp_path) == other, "what is known is not measured again"
    assert host_throughput(SPACE, (10,), RECIPE, tmp_path, fresh_s=3600.0) == other, "it is fresh"
    file.write_text(json.dumps({**document, **other.to_json()}))
    assert host_throughput(SPACE, (10,), RECIPE, tmp_path) == other, "any age will do"
    assert host_throughput(SPACE, (10,), RECIPE, tmp_path, fresh_s=3600.0) != other, "nobody knows how old it was"
    for damage in ({"precision": "fp8"}, {"work_s": -1.0}, {"work_s": 0.0, "step_s": 0.0}, {"key": "another host"}):
        file.write_text(json.dumps({**document, **damage}))
        again = host_throughput(SPACE, (10,), RECIPE, tmp_path)
        assert again.precision in ("fp32", "bf16")
        assert again.work_s + again.step_s > 0


def test_what_was_measured_on_a_busy_machine_is_used_once_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput_module, "is_crowded", lambda *_: True)
    monkeypatch.setattr(throughput_module, "others_cores", lambda *_: 1.94)
    found = host_throughput(SPACE, (10,), RECIPE, tmp_path)
    assert found.others == 1.9
    assert not (tmp_path / "training-throughput").exists(), "the next search measures again"
    assert TrainingThroughput.from_json(found.to_json()).others == 1.9, "a run that goes on says so too"
    older = {name: value for name, value in found.to_json().items() if name != "others"}
    assert TrainingThroughput.from_json(older).others == 0.0
    config = SearchConfig(limits=Limits.of(latency_ms=5.0), budget_s=100.0)
    recipes = Recipes(config=config, space=SPACE, data=tiny_data(), base=RECIPE, throughput=found)
    assert "1.9 cores busy" in (busy(recipes) or "")
    assert busy(replace(recipes, throughput=SLOW)) is None


def test_a_slow_step_is_not_timed_again() -> None:
    """By a clock that the steps turn: seconds of each of them."""
    for took_s, enough_s, fastest_s in (([1.0, 3.0, 2.0], 10.0, 2.0), ([5.0], 4.0, 5.0), ([2.0, 3.0], 4.0, 3.0)):
        now, left = [0.0], list(took_s)

        def step(now: list[float] = now, left: list[float] = left) -> None:
            now[0] += left.pop(0)

        found = setup.fastest_call(step, torch.device("cpu"), 2, enough_s, clock=lambda now=now: now[0])
        assert found == fastest_s
        assert not left, "each was done once"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', "null"])
def test_a_damaged_file_is_written_anew(known: tuple[str, str], tmp_path: Path, content: str) -> None:
    file = cache_with(SLOW, known, tmp_path)
    file.write_text(content)
    assert host_throughput(SPACE, (10,), RECIPE, tmp_path) != SLOW
    assert json.loads(file.read_text())["key"] == known[1]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Name of the file in which a throughput in batches of 4 is kept, and its key."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(throughput_module, "is_crowded", lambda *_: False)
        host_throughput(SPACE, (10,), RECIPE, folder)
    return cached(folder).name, json.loads(cached(folder).read_text())["key"]


def cache_with(throughput: TrainingThroughput, known: tuple[str, str], folder: Path) -> Path:
    """The file of a user's cache that holds this throughput."""
    name, key = known
    path = folder / "training-throughput" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"key": key, **throughput.to_json()}))
    return path


def test_a_throughput_that_trainings_contradict_is_forgotten(known: tuple[str, str], tmp_path: Path) -> None:
    path = cache_with(SLOW, known, tmp_path)
    before = path.read_text()
    for ratios in ([0.2, 0.2], [0.7, 0.2, 1.3], [1.4, 1.4, 9.0], []):
        assert forget_wrong_throughput(SPACE, RECIPE, SLOW, ratios, tmp_path) is None, "too few, or within a step"
    assert forget_wrong_throughput(SPACE, RECIPE.changed(batch_size=64), SLOW, [0.2] * 3, tmp_path) is None, (
        "nothing is known of such batches"
    )
    newer = replace(SLOW, precision="bf16")
    assert forget_wrong_throughput(SPACE, RECIPE, newer, [0.2] * 3, tmp_path) is None, "the cache's is newer"
    assert path.read_text() == before
    for ratio in (0.25, 2.0):
        path.write_text(before)
        assert forget_wrong_throughput(SPACE, RECIPE, SLOW, [ratio, 1.0, ratio], tmp_path) == ratio
        assert not path.exists()


def test_a_search_doubts_the_throughput_by_its_own_trainings(known: tuple[str, str], tmp_path: Path) -> None:
    config = SearchConfig(limits=Limits.of(latency_ms=5.0))
    base = TASKS["classification"].recipe(precision="fp32", batch_size=4)
    recipes = Recipes(config=config, space=SPACE, data=tiny_data(), base=base, throughput=SLOW)
    archs = SPACE.anchors[:1] * 3

    def trained(ratio: float) -> list[Evaluated]:
        return [Evaluated(a, i, 0.5, 1.0, ratio * OVERHEAD * recipes.image_s(a)) for i, a in enumerate(archs)]

    path = cache_with(SLOW, known, tmp_path)
    before = path.read_text()
    assert doubt_throughput(recipes, trained(1.0), folder=tmp_path) is None
    elsewhere = replace(recipes, config=replace(config, ray="auto"))
    assert doubt_throughput(elsewhere, trained(0.25), folder=tmp_path) is None
    estimated = [replace(e, seconds_per_image=None) for e in trained(0.25)]
    assert doubt_throughput(recipes, estimated, folder=tmp_path) is None
    full_s = 3 * len(recipes.data.train) * OVERHEAD * recipes.image_s(archs[0])
    cut = [(a, Trained(accuracy=0.5, epochs=2, seconds=full_s / 4)) for a in archs]
    assert doubt_throughput(recipes, estimated, cut, 3, tmp_path) is None, "the clock ended them"
    assert path.read_text() == before
    remark = doubt_throughput(recipes, trained(0.25), folder=tmp_path)
    assert remark is not None
    assert "0.25 times as long" in remark
    path.write_text(before)
    assert doubt_throughput(recipes, estimated, [(a, replace(t, epochs=3)) for a, t in cut], 3, tmp_path)
    assert not path.exists()


def test_a_full_training_is_planned_without_the_small_batches_of_the_short_one() -> None:
    config = SearchConfig(limits=Limits.of(latency_ms=5.0))
    base = TASKS["classification"].recipe(precision="fp32", batch_size=64, least_steps=0)
    data, slow = replace(tiny_data(), train=images(600)), replace(SLOW, update_s=1000.0)
    recipes = Recipes(config=config, space=SPACE, data=data, base=base, throughput=slow)
    arch = SPACE.anchors[0]
    candidate = Evaluated(arch, 0, 0.5, 1.0, 0.1)
    assert recipes.full_image_s(candidate) == 0.1, "batches are equal"
    smaller = replace(recipes, base=base.changed(least_steps=40))
    assert smaller.short_batch(arch) == 32
    ratio = recipes.image_s(arch, 64) / recipes.image_s(arch, 32)
    assert ratio < 0.9
    assert smaller.full_image_s(candidate) == pytest.approx(0.1 * ratio)


@pytest.mark.parametrize("seconds", [600.0, math.inf])
def test_expected_epochs_are_those_that_fit_into_the_last_round(seconds: float) -> None:
    """Also where trials alone end the search: then a usual budget is planned for."""
    limits, trials = Limits.of(latency_ms=5.0), None if math.isfinite(seconds) else 8
    config = SearchConfig(limits=limits, budget_s=seconds if trials is None else None, max_trials=trials)
    recipes = Recipes(config=config, space=SPACE, data=tiny_data(), base=RECIPE, throughput=SLOW)
    choices = SPACE.choices(SPACE.anchors[:2])
    epochs = recipes.epochs(choices, 2)
    took_s = epochs * len(tiny_data().train) * OVERHEAD * np.array([recipes.image_s(a) for a in SPACE.anchors[:2]])
    assert took_s[0] == pytest.approx(took_s[1])
    assert 0.5 * 600 < took_s[0] < 0.97 * 600
    assert np.isfinite(promise([0.5, 0.6], [1e6, 2e6], epochs.tolist())).all()


def test_a_plan_says_by_which_time_it_ordered_the_candidates() -> None:
    """That of the whole round, where a clock ends it: a training in it ends earlier, for the deployments."""
    config = SearchConfig(limits=Limits.of(latency_ms=5.0), budget_s=600.0)
    data = tiny_data()
    recipes = Recipes(config=config, space=SPACE, data=data, base=RECIPE, throughput=SLOW)
    candidates = [Evaluated(arch, i, 0.5, 1.0, 0.1) for i, arch in enumerate(SPACE.anchors[:2])]

    def planned(budget_s: float) -> FinalPlan:
        return plan_last_round(
            recipes, candidates, Budget(budget_s, lambda: 0.0), 580.0, 1, lambda arch, n: (), trained=True
        )

    plan = planned(600.0)
    assert plan.full_image_s == 580.0 / len(data.train)
    assert plan.recipe.time_limit_s is not None
    assert plan.recipe.time_limit_s / len(data.train) < plan.full_image_s
    assert planned(math.inf).full_image_s is None


@pytest.mark.parametrize(("winners", "finalists"), [(1, 1), (2, 2)])
def test_few_images_are_no_reason_for_two_halves_of_a_training(winners: int, finalists: int) -> None:
    """Two networks can have 60 epochs each, of 2,500 images that want 100 of one; two winners are two networks."""
    config = SearchConfig(limits=Limits.of(latency_ms=5.0), budget_s=600.0, top=winners)
    data = replace(tiny_data(), train=images(2500))
    recipes = Recipes(config=config, space=SPACE, data=data, base=RECIPE, throughput=SLOW)
    image_s = 580.0 / (2 * 60 * 2500 * OVERHEAD)
    candidates = [Evaluated(arch, i, 0.5, 1.0, image_s) for i, arch in enumerate(SPACE.anchors[:2])]

    def size(seconds_per_image: float) -> int:
        found = [replace(e, seconds_per_image=seconds_per_image) for e in candidates]
        budget = Budget(600.0, lambda: 0.0)
        return plan_last_round(recipes, found, budget, 580.0, 1, lambda arch, n: (), trained=True).size

    assert size(image_s) == finalists
    assert size(image_s / 3) == 2, "there is time for 180 epochs each"


def test_a_run_keeps_the_throughput_it_was_planned_with(tmp_path: Path) -> None:
    """Also when the cache has forgotten it, when the budget is another one, and for another limit."""
    data, config = tiny_data(), SearchConfig(limits=Limits.of(latency_ms=5.0))
    planned, measured = replace(SLOW, step_s=0.125), TrainingThroughput(DEVICE, "bf16", 1.0)

    def make(known: TrainingThroughput | None, else_: TrainingThroughput) -> Recipes:
        base = TASKS["classification"].recipe(precision="fp32")
        return Recipes(config=config, space=SPACE, data=data, base=base, throughput=known or else_)

    old, new = RunFolder(tmp_path), RunFolder(tmp_path / "limits" / "4ms")
    new.path.mkdir(parents=True)
    deadlines = search_plan(old, Budget(100.0), lambda known: make(known, planned), baselines=False).deadlines
    take_over(old, new)
    for folder in (old, new):
        plan = search_plan(folder, Budget(200.0), lambda known: make(known, measured), baselines=False)
        assert plan.recipes.throughput == planned
        assert plan.deadlines != deadlines


def test_small_networks_are_bound_by_launches_and_large_ones_by_work() -> None:
    nominal = np.array([0.01, 0.02, 0.05, 1.0, 20.0])
    overhead, work = fitted_steps(0.016 + nominal / 4000, nominal)
    assert overhead == pytest.approx(0.016, rel=1e-6)
    assert work == pytest.approx(1 / 4000, rel=1e-6)
    noisy = (0.016 + nominal / 4000) * np.array([1.05, 0.96, 1.02, 0.97, 1.03])
    overhead, work = fitted_steps(noisy, nominal)
    assert overhead == pytest.approx(0.016, rel=0.1)
    assert work == pytest.approx(1 / 4000, rel=0.15)


def test_where_steps_are_work_the_throughput_is_the_median_ratio() -> None:
    nominal = np.array([0.1, 0.2, 0.3, 0.4, 0.9])
    assert fitted_steps(nominal * np.array([2.0, 2.2, 1.9, 2.1, 1.8]), nominal) == (0.0, pytest.approx(2.0))
    assert fitted_steps([0.3], [0.1]) == (0.0, pytest.approx(3.0))


def test_an_image_costs_its_work_and_its_share_of_the_step() -> None:
    costs = SPACE.costs(SPACE.choices(list(SPACE.anchors)), (10,))
    nominal = nominal_image_s(costs)
    np.testing.assert_allclose(TrainingThroughput("cpu", "fp32", 0.5).image_s(costs, 64), 0.5 * nominal)
    small = TrainingThroughput("cuda:0", "bf16", 1e-5, 0.016).image_s(costs, 64)
    np.testing.assert_allclose(small, 0.016 / 64 + 1e-5 * nominal)
    turned = TrainingThroughput("cpu", "bf16", 0.5, update_s=2.0)
    per_step = (turned.image_s(costs, 16) - turned.image_s(costs, 64)) * 16 * 64 / (64 - 16)
    np.testing.assert_allclose(per_step, 2.0 * nominal_update_s(costs))


@pytest.mark.parametrize("seconds", [1.1, 0.9, 2.2, 3.7, 0.26, 1e9, 1e-9])
def test_throughputs_are_rounded_to_half_octaves_however_fast_a_device_is(seconds: float) -> None:
    assert 2**-0.25 <= rounded(seconds) / seconds <= 2**0.25
    assert 2 * math.log2(rounded(seconds)) == pytest.approx(round(2 * math.log2(rounded(seconds))))
    assert rounded(1.4) == pytest.approx(math.sqrt(2))
    assert rounded(0.0) == 0.0


def test_bf16_has_to_be_worth_its_rounding() -> None:
    plain, mixed = (Setup(precision=p, channels_last=True, batch_size=8) for p in ("fp32", "bf16"))
    assert fastest({plain: 1.0, mixed: 0.95}) == plain
    assert fastest({plain: 1.0, mixed: 0.5}) == mixed


def test_one_candidate_cannot_spend_the_budget_on_a_slow_day() -> None:
    base, arch = TASKS["classification"].recipe(precision="fp32"), SPACE.anchors[0]
    for config in (
        SearchConfig(limits=Limits.of(latency_ms=5.0), budget_s=100.0),
        SearchConfig(limits=Limits.of(latency_ms=5.0), max_trials=5),
    ):
        recipes = Recipes(config=config, space=SPACE, data=tiny_data(), base=base, throughput=SLOW)
        limit_s = recipes.short(arch).recipe.time_limit_s
        if config.budget_s is None:
            assert limit_s is None, "nothing may depend on the clock"
        else:
            assert limit_s is not None
            assert recipes.short_s < limit_s < 100.0


@pytest.mark.parametrize("budget_s", [60.0, 600.0, 3600.0, 4 * 3600.0, 36e3, 40 * 3600.0, 48 * 3600.0, 1e6])
def test_no_short_training_that_is_planned_hangs(budget_s: float) -> None:
    """With twice the time that it may take, for its last validation and a busy machine."""
    base = TASKS["classification"].recipe(precision="fp32")
    for baselines in (False, True):
        config = SearchConfig(limits=Limits.of(latency_ms=5.0), budget_s=budget_s, baselines=baselines)
        recipes = Recipes(config=config, space=SPACE, data=tiny_data(), base=base, throughput=SLOW)
        limit_s = recipes.short(SPACE.anchors[0]).recipe.time_limit_s
        assert limit_s is not None
        assert hangs_after_s(budget_s) > 2 * limit_s
