"""Neighbours of an architecture and what they are predicted to save."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.advice.what_if import WhatIf, best, model_for, neighbours, ranked, what_ifs
from nas.deployment import Deployment
from nas.errors import UserError
from nas.targets.latency import LatencyModel
from nas.targets.registry import Target
from search_spaces import Architecture, SearchSpace, load_search_space
from tests.nas.fake_device import FP32, fake_profile, true_latency_ms

SIZE = (10,)
SPACE = load_search_space("mixed").restrict("resolution", [64])


@pytest.fixture(scope="module")
def target() -> Target:
    return Target("fake", is_host=True, profile=fake_profile(networks=64, spaces=["mixed"]), differences=())


@pytest.fixture(scope="module")
def model(target: Target) -> LatencyModel:
    return model_for(target, FP32)


def drawn(seed: int, space: SearchSpace = SPACE) -> Architecture:
    return space.architecture(space.sample(1, np.random.default_rng(seed))[0])


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from(["mobile", "mixed", "detect"]))
def test_neighbours_differ_in_one_decision_and_take_the_same_input(seed: int, name: str) -> None:
    space = load_search_space(name)
    arch = drawn(seed, space)
    rows = neighbours(space, arch)
    (own,) = space.choices([arch])
    assert len(np.unique(rows, axis=0)) == len(rows) > 0
    assert (space.canonical(rows) == rows).all()
    assert (rows != own).any(axis=1).all()
    spec = space.signature(arch, space.usual_size).input
    assert {space.signature(space.architecture(row), space.usual_size).input for row in rows[::7]} == {spec}


def test_every_option_of_every_decision_is_tried(model: LatencyModel) -> None:
    arch = drawn(3)
    found = what_ifs(model, SPACE, arch, SIZE)
    parameters = SPACE.parameters(arch)
    changed = {(w.block, w.decision) for w in found}
    assert {("stem", "width"), ("stage1", "family"), ("stage2", "depth"), ("stage3", "width")} <= changed
    widths = {w.change for w in found if (w.block, w.decision) == ("stage3", "width")}
    options = SPACE.decisions[SPACE.column("stage3.width")].options
    assert widths == {f"width {parameters['stage3.width']} -> {o}" for o in options if o != parameters["stage3.width"]}


def test_savings_are_those_of_the_model(model: LatencyModel) -> None:
    arch = drawn(5)
    found = what_ifs(model, SPACE, arch, SIZE, scale=2.0)
    rows = SPACE.choices([arch, *(w.architecture for w in found)])
    mean = model.predict(SPACE, rows, SIZE)[FP32].mean
    macs = SPACE.costs(rows, SIZE)["macs"]
    np.testing.assert_allclose([w.saves_ms for w in found], 2 * (mean[0] - mean[1:]))
    assert [w.d_macs for w in found] == (macs[1:] - macs[0]).astype(int).tolist()


def test_the_times_of_slots_are_those_of_blocks_that_are_there(model: LatencyModel) -> None:
    rows = SPACE.sample(5, np.random.default_rng(1))
    (slot_ms,) = model.slot_ms(SPACE, rows, SIZE).values()
    np.testing.assert_array_equal(slot_ms > 0, SPACE.slot_counts(rows) > 0)
    mean = model.predict(SPACE, rows, SIZE)[FP32].mean
    np.testing.assert_allclose(slot_ms.sum(axis=1), mean, rtol=0.5)  # the network's own constant is in none of them


def test_savings_are_right_on_a_device_without_surprises(model: LatencyModel) -> None:
    """Their signs, and the 90 % intervals, which must neither miss nor say nothing."""
    signs, covered, widths = [], [], []
    for seed in range(6):
        arch = drawn(seed)
        found = what_ifs(model, SPACE, arch, SIZE)
        rows = SPACE.choices([arch, *(w.architecture for w in found)])
        truth = true_latency_ms(SPACE.costs(rows, SIZE), 1.0)
        for what_if, ms in zip(found, truth[0] - truth[1:], strict=True):
            low, high = what_if.interval
            covered.append(low <= ms <= high)
            widths.append((high - low) / truth[0])
            if abs(ms) > 0.02 * truth[0]:
                signs.append((what_if.saves_ms > 0) == (ms > 0))
    assert np.mean(signs) >= 0.9
    assert np.mean(covered) >= 0.8
    assert np.median(widths) < 0.5


def test_changes_name_the_modules_that_they_change(model: LatencyModel) -> None:
    arch = SPACE.replace(drawn(3), stage2__depth=2)
    by_change = {(w.block, w.decision): w.modules for w in what_ifs(model, SPACE, arch, SIZE)}
    assert by_change["stage2", "family"] == ("stages.1.0", "stages.1.1")
    assert by_change["stage2", "depth"] == ("stages.1.0", "stages.1.1")
    assert by_change["stage2", "width"][:3] == ("stages.1.0", "stages.1.1", "stages.2.0")
    assert by_change["stem", "width"] == ("stem", "stages.0.0")


def change(saves_ms: float, worth: float, std_ms: float = 0.01, decision: str = "width") -> WhatIf:
    return WhatIf(
        block="stage1", decision=decision, change="", architecture=drawn(0), modules=(), saves_ms=saves_ms,
        std_ms=std_ms, d_macs=0, worth=worth,
    )  # fmt: skip


def test_sure_savings_come_first_and_then_those_per_mac() -> None:
    costs, unsure, little, much = change(-1, -9), change(1, 9, std_ms=5), change(1, 1), change(0.5, 3)
    assert ranked([costs, unsure, little, much]) == [much, little, unsure, costs]


def test_the_best_each_change_another_decision() -> None:
    first, same, other, costs = (
        change(1, 3),
        change(1, 2),
        change(1, 1, decision="depth"),
        change(-1, -1, decision="se"),
    )
    assert best([first, same, other, costs], 3) == [first, other]


def test_a_measured_saving_is_told() -> None:
    document = change(1.0, 2.0).measured(0.9).to_json()
    assert {"block", "change", "saves_ms", "interval", "d_macs", "measured_ms"} <= set(document)
    assert (document["measured_ms"], document["interval"]) == (0.9, pytest.approx([1 - 0.01645, 1 + 0.01645]))


@pytest.mark.parametrize(
    ("deployment", "why"),
    [
        (Deployment("torch", "fp16", 1, 1, "cuda:0"), "was measured on the CPU, and says nothing of cuda:0"),
        (replace(FP32, batch=8), "is of calls with 1 images, not 8"),
        (replace(FP32, threads=7), "has no onnxruntime-fp32 with 7 threads"),
    ],
)
def test_a_profile_that_does_not_know_is_refused(deployment: Deployment, why: str, target: Target) -> None:
    with pytest.raises(UserError, match=why) as error:
        model_for(target, deployment)
    assert error.value.hint


def test_without_a_profile_there_is_no_model() -> None:
    with pytest.raises(UserError, match="nothing is known of the latencies of 'local'"):
        model_for(Target("local", is_host=True, profile=None, differences=()), FP32)
