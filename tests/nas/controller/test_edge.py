"""Limits that a prediction cannot tell to be kept: networks are measured first, and refused on their word."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.controller.config import SearchConfig
from nas.controller.inputs import found_good
from nas.controller.prediction import edge
from nas.controller.prediction.edge import FEWEST, NETWORKS, affordable, at_the_edge, near_a_tight_limit
from nas.controller.prediction.feasibility import SAMPLES, fastest_networks
from nas.controller.prediction.probes import FileModel
from nas.controller.prediction.target_model import TargetModel
from nas.controller.prediction.target_record import read_target, write_target
from nas.deployment import PIPELINE, Deployment
from nas.errors import InfeasibleError
from nas.limits import Limits
from nas.measure.measurement import Measurement
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.targets.latency import Checked, LatencyModel
from nas.tasks.classification.data.registry import load_dataset
from search_spaces import Architecture, load_search_space
from tests.nas.fake_device import FP32, INT8, fake_measurements, fake_profile, save_fake_profile

SPACE = load_search_space("mixed").restrict("resolution", [32])
SIZE = (10,)


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return TargetModel("fake", this_host(), LatencyModel(fake_profile(spaces=("mixed",))), ())


@pytest.fixture(scope="module")
def fastest_ms(target: TargetModel) -> float:
    """What the fastest network of the space is expected to take."""
    rng = np.random.default_rng(0)
    choices = fastest_networks(SPACE, target.model, SIZE, SPACE.sample(SAMPLES, rng), rng)
    return float(min(p.mean.min() for p in target.model.predict(SPACE, choices, SIZE).values()))


def measured_as(monkeypatch: pytest.MonkeyPatch, target: TargetModel, factor: float) -> list[Architecture]:
    """Networks take `factor` of what is predicted of them when they are measured; returns those that were."""
    asked: list[Architecture] = []

    def measure(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        asked.extend(archs)
        predicted = target.model.of_networks().predict(SPACE, SPACE.choices(list(archs)), SIZE)
        rows = fake_measurements(archs, deployments)
        return [
            [replace(m, p50_ms=factor * float(predicted[m.request.deployment].mean[i])) for m in row]
            for i, row in enumerate(rows)
        ]

    monkeypatch.setattr(edge, "measure_networks", measure)
    return asked


def checked(target: TargetModel, limit_ms: float, **limits: float) -> TargetModel | None:
    asked = Limits.of(latency_ms=limit_ms, **limits)  # type: ignore[arg-type]
    return at_the_edge(target, SPACE, SIZE, asked, 0, SilentProgress())


def test_a_limit_that_the_prediction_cannot_tell_is_kept_where_networks_keep_it(
    target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SearchConfig(target="fake", limits=Limits.of(latency_ms=fastest_ms), space="mixed")
    data = load_dataset("digits")
    with pytest.raises(InfeasibleError, match="keep"):
        found_good(config, data, SPACE, target, files=FileModel())
    asked = measured_as(monkeypatch, target, 0.8)
    known = checked(target, fastest_ms)
    assert known is not None
    assert len(asked) == len({a.key for a in asked}) == NETWORKS
    assert known.model.checks.keys() == {INT8}, "fp32 takes far longer, and is not measured"
    assert known.model.checks[INT8].scale == pytest.approx(0.8)
    assert "6 of its fastest networks were measured first" in known.notes[-1]
    inputs = found_good(config, data, SPACE, known, files=FileModel())
    assert any(r.satisfiable for r in inputs.ranges)
    assert target.model.checks == {}, "what it was made of is as it was"


def test_a_short_budget_measures_less(target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert affordable(math.inf, 50.0)[0] == NETWORKS
    assert affordable(math.inf, 50.0)[1] >= 8
    few = [affordable(18.0, interval_ms) for interval_ms in (0.0, 50.0, 200.0)]
    assert [networks for networks, _ in few] == [NETWORKS, FEWEST, FEWEST]
    assert [deployments for _, deployments in few] == sorted((d for _, d in few), reverse=True)
    assert affordable(0.0, 200.0) == (FEWEST, 1)
    asked = measured_as(monkeypatch, target, 0.8)
    limits = Limits.of(latency_ms=4 * fastest_ms, percentile=90)
    found = at_the_edge(target, SPACE, SIZE, limits, 0, SilentProgress(), 0.0)
    assert found is not None
    assert len(asked) == FEWEST
    assert found.model.checks.keys() == {INT8}, "the faster one"


def test_a_limit_that_they_do_not_keep_is_refused_with_what_they_took(
    target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_as(monkeypatch, target, 1.4)
    known = checked(target, fastest_ms)
    assert known is not None
    config = SearchConfig(target="fake", limits=Limits.of(latency_ms=fastest_ms), space="mixed")
    with pytest.raises(InfeasibleError) as error:
        found_good(config, load_dataset("digits"), SPACE, known, files=FileModel())
    named = float(str(error.value).split("nearest feasible limit is ")[1].split(" ms")[0])
    assert 1.3 * fastest_ms < named < 1.7 * fastest_ms


def test_nothing_is_measured_where_it_would_tell_nothing(
    target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = measured_as(monkeypatch, target, 1.0)
    assert checked(target, fastest_ms / 10) is None
    assert at_the_edge(target, SPACE, SIZE, Limits.of(max_params=1e3), 0, SilentProgress()) is None
    assert checked(target, 100 * fastest_ms, max_params=1e3) is None, "what is in the way is not the latency"
    assert checked(replace(target, site=None), fastest_ms) is None
    assert asked == []


def test_near_a_tight_limit_more_of_it_may_be_used(
    target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks take nine tenths of what is predicted, and all alike: those that were measured say so."""
    monkeypatch.setattr(edge, "UNSURE_STD", 0.0)
    asked = measured_as(monkeypatch, target, 0.9)
    limit_ms = 2 * fastest_ms
    limits = Limits.of(latency_ms=limit_ms)
    known = near_a_tight_limit(target, SPACE, SIZE, limits, 0, SilentProgress())
    assert known is not None
    assert len(asked) == len({a.key for a in asked}) == NETWORKS
    took = target.model.predict(SPACE, SPACE.choices(asked), SIZE)[INT8].mean
    assert np.all(np.abs(took / limit_ms - edge.NEAR) < 0.1)
    assert known.model.checks[INT8].scale == pytest.approx(0.9)
    assert "6 that are predicted to be just below it" in known.notes[-1]
    config = SearchConfig(target="fake", limits=limits, space="mixed")
    data, sampled = load_dataset("digits"), SPACE.sample(4096, np.random.default_rng(5))
    before = found_good(config, data, SPACE, target, files=FileModel()).scorer.feasible(sampled)
    after = found_good(config, data, SPACE, known, files=FileModel()).scorer.feasible(sampled)
    assert after.sum() > 1.1 * before.sum()


@pytest.mark.parametrize(
    ("limit", "budget_s", "unsure"),
    [
        pytest.param(1000.0, math.inf, 0.0, id="a limit that most networks keep"),
        pytest.param(2.0, 120.0, 0.0, id="no time"),
        pytest.param(2.0, math.inf, 1.0, id="predictions that are good already"),
        pytest.param(None, math.inf, 0.0, id="no limit on calls"),
    ],
)
def test_nothing_is_measured_near_a_limit_where_nothing_would_be_gained(
    target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch,
    limit: float | None, budget_s: float, unsure: float,
) -> None:  # fmt: skip
    monkeypatch.setattr(edge, "UNSURE_STD", unsure)
    asked = measured_as(monkeypatch, target, 0.9)
    limits = Limits.of(max_params=1e5) if limit is None else Limits.of(latency_ms=limit * fastest_ms)
    assert near_a_tight_limit(target, SPACE, SIZE, limits, 0, SilentProgress(), budget_s) is None
    far = replace(target, site=None)
    assert near_a_tight_limit(far, SPACE, SIZE, Limits.of(latency_ms=2 * fastest_ms), 0, SilentProgress()) is None
    assert asked == []


def test_what_goes_around_networks_is_not_scaled(
    target: TargetModel, fastest_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = replace(target, model=target.model.around(dict.fromkeys(SPACE.inputs, 5.0)))
    measured_as(monkeypatch, around, 2.0)
    known = checked(around, 5.0 + fastest_ms)
    assert known is not None
    choices = SPACE.sample(8, np.random.default_rng(1))
    alone, whole = target.model.predict(SPACE, choices, SIZE), known.model.predict(SPACE, choices, SIZE)
    np.testing.assert_allclose(whole[FP32.covering(PIPELINE)].mean, 2 * alone[FP32].mean + 5.0)


def test_a_continued_search_knows_what_was_found(
    target: TargetModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_fake_profile(tmp_path, target.model.profile)
    known = replace(target, model=target.model.checked({INT8: Checked(0.9, 0.05, 1.0)}))
    write_target(tmp_path / "target.json", known, FileModel())
    config = SearchConfig(target="fake", limits=Limits.of(latency_ms=1.0), space="mixed")
    again = read_target(tmp_path / "target.json", config)
    assert again is not None
    assert again[0].model.checks == {INT8: Checked(0.9, 0.05, 1.0)}
    other = read_target(tmp_path / "target.json", replace(config, limits=Limits.of(latency_ms=20.0)))
    assert other is not None
    assert other[0].model.checks == {}, "it holds for networks near the limit that it was made for"
