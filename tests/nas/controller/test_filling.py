"""Well-known designs are made to fill a tight limit, by prediction first and then by what they are measured to take."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray

from nas.controller.config import SearchConfig
from nas.controller.prediction import filling
from nas.controller.prediction.edge import shares
from nas.controller.prediction.filling import FILLED, filled, trainable, with_filled_designs
from nas.controller.prediction.probes import FileModel
from nas.controller.prediction.target_model import Designs, TargetModel
from nas.controller.prediction.target_record import read_target, write_target
from nas.controller.promise import worth_by_promise
from nas.deployment import Deployment
from nas.limits import Limits
from nas.measure.measurement import Measurement
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.samplers import SamplerTask, SurrogateSettings, Worth, architecture_of, make_sampler
from nas.targets.latency import LatencyModel
from search_spaces import Architecture, Choices, load_search_space
from search_spaces.reference import resolve_space
from tests.nas.fake_device import fake_measurements, fake_profile, save_fake_profile

SPACE = load_search_space("compact").restrict("resolution", [32])
SIZE = (10,)
EARLY = SPACE.column("stem.early")


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return TargetModel("fake", this_host(), LatencyModel(fake_profile(spaces=("compact",))), ())


@pytest.fixture(scope="module")
def tight_ms(target: TargetModel) -> float:
    """A limit that a fifth of the space keeps."""
    sampled = SPACE.sample(1024, np.random.default_rng(3))
    return float(np.quantile(shares(target.model, SPACE, sampled, SIZE, Limits.of(latency_ms=1.0)), 0.2))


def took_longer(monkeypatch: pytest.MonkeyPatch, target: TargetModel, factor: float) -> list[Architecture]:
    """Networks whose maps shrink early take `factor` times what is predicted of them; returns what was measured."""
    asked: list[Architecture] = []

    def measure(archs: Sequence[Architecture], deployments: Sequence[Deployment], **_: Any) -> list[list[Measurement]]:
        asked.extend(archs)
        choices = SPACE.choices(list(archs))
        predicted = target.model.predict(SPACE, choices, SIZE)
        slower = np.where(choices[:, EARLY] == 1, factor, 1.0)
        rows = fake_measurements(archs, deployments)
        return [
            [replace(m, p50_ms=float(slower[i] * predicted[m.request.deployment].mean[i])) for m in row]
            for i, row in enumerate(rows)
        ]

    monkeypatch.setattr(filling, "measure_networks", measure)
    return asked


def macs(choices: Choices) -> NDArray[np.float64]:
    return SPACE.costs(choices, SIZE)["macs"]


@pytest.mark.parametrize("most", [5e6, 20e6, 80e6])
@pytest.mark.parametrize("number", range(len(SPACE.designs)))
def test_a_design_is_made_to_fill_a_limit(number: int, most: float) -> None:
    """Here a limit on MACs themselves: nothing larger by one step keeps it, and all but sizes stays."""
    (design,) = SPACE.designs[number][-1:]
    found = filled(SPACE, design, lambda c: macs(c) / most, SIZE)
    if found is None:
        narrowest = SPACE.choices([design]).copy()
        for column, decision in enumerate(SPACE.decisions):
            if decision.name.endswith(("width", "depth")):
                narrowest[:, column] = 0
        assert macs(narrowest)[0] > most
        return
    row, before = SPACE.choices([found]), SPACE.choices([design])
    assert macs(row)[0] <= most
    for column, decision in enumerate(SPACE.decisions):
        if not decision.name.endswith(("width", "depth")):
            assert row[0, column] == before[0, column]
        elif row[0, column] + 1 < len(decision.options):
            larger = row.copy()
            larger[0, column] += 1
            assert macs(SPACE.canonical(larger))[0] > most


def test_no_decision_changes_much_more_than_another() -> None:
    (design,) = SPACE.designs[-1][-1:]
    found = filled(SPACE, design, lambda c: macs(c) / 10e6, SIZE)
    assert found is not None
    changed = np.abs(np.subtract(*SPACE.choices([design, found])))
    assert 1 <= changed.max() <= 2


def test_designs_are_made_anew_by_what_they_were_measured_to_take(
    target: TargetModel, tight_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = took_longer(monkeypatch, target, 1.4)
    limits = Limits.of(latency_ms=tight_ms)
    known = with_filled_designs(target, SPACE, SIZE, limits, 0, SilentProgress())
    assert known is not None
    assert known.designs is not None
    assert known.designs.limit_ms == tight_ms
    choices = SPACE.choices(known.designs.archs)
    took = shares(target.model, SPACE, choices, SIZE, limits) * np.where(choices[:, EARLY] == 1, 1.4, 1.0)
    assert (took <= 1.0).all()
    assert took.max() > filling.ENOUGH
    early = [a for a in asked if a.choices[EARLY] == 1]
    assert len(early) > sum(a.choices[EARLY] == 1 for a in known.designs.archs), "the first ones were too slow"
    assert len({a.key for a in asked}) == len(asked), "nothing is measured twice"
    assert known.notes[-1].startswith(FILLED)


def test_what_is_measured_to_be_faster_than_predicted_stays_within_the_prediction(
    target: TargetModel, tight_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates are compared, and begun anew under the same limit, by predictions."""
    took_longer(monkeypatch, target, 0.7)
    limits = Limits.of(latency_ms=tight_ms)
    known = with_filled_designs(target, SPACE, SIZE, limits, 0, SilentProgress())
    assert known is not None
    assert known.designs is not None
    assert (shares(target.model, SPACE, SPACE.choices(known.designs.archs), SIZE, limits) <= 1.0).all()


def test_more_classes_take_longer_than_what_is_measured(
    target: TargetModel, tight_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks are measured with a last layer of ten classes, and limits are on those with a thousand."""
    took_longer(monkeypatch, target, 1.0)
    limits, classes = Limits.of(latency_ms=tight_ms), (1000,)
    known = with_filled_designs(target, SPACE, classes, limits, 0, SilentProgress())
    assert known is not None
    assert known.designs is not None
    choices = SPACE.choices(known.designs.archs)
    took = shares(target.model, SPACE, choices, classes, limits)
    assert (took <= (1.0 + filling.FULL) / 2).all()
    assert (took > shares(target.model, SPACE, choices, SIZE, limits)).all()


def test_options_may_stand_in_any_order(tmp_path: Path) -> None:
    stages = [{"widths": [24, 16, 32], "depths": [2, 1]}] * 4
    table = {"schema": "nas-space/1", "kind": "staged", "name": "own", "families": ["basic"], "stem_widths": [16, 8],
             "stages": stages, "anchors": [{}], "resolutions": [32]}  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps(table))
    space = resolve_space(str(tmp_path / "own.json"))
    (design,) = space.designs[0]
    whole = space.costs(space.choices([design]), SIZE)["macs"][0]
    for part in (0.5, 1.5):
        found = filled(space, design, lambda c, part=part: space.costs(c, SIZE)["macs"] / (part * whole), SIZE)  # type: ignore[misc]
        assert found is not None
        assert 0.6 * part * whole < space.costs(space.choices([found]), SIZE)["macs"][0] <= part * whole


@pytest.mark.parametrize(
    ("scale", "budget_s", "more"),
    [
        pytest.param(100.0, math.inf, {}, id="a limit that most networks keep"),
        pytest.param(1.0, 60.0, {}, id="no time"),
        pytest.param(1.0, math.inf, {"max_size_mb": 1.0}, id="another limit counts as well"),
        pytest.param(None, math.inf, {"max_params": 1e5}, id="no limit on calls"),
        pytest.param(0.01, math.inf, {}, id="a limit that no design reaches"),
    ],
)
def test_nothing_is_made_where_it_would_be_of_no_use(
    target: TargetModel, tight_ms: float, monkeypatch: pytest.MonkeyPatch,
    scale: float | None, budget_s: float, more: dict[str, float],
) -> None:  # fmt: skip
    asked = took_longer(monkeypatch, target, 1.0)
    given: dict[str, Any] = more if scale is None else {"latency_ms": scale * tight_ms, **more}
    limits = Limits.of(**given)
    assert with_filled_designs(target, SPACE, SIZE, limits, 0, SilentProgress(), budget_s) is None
    tight = Limits.of(latency_ms=tight_ms)
    assert with_filled_designs(replace(target, site=None), SPACE, SIZE, tight, 0, SilentProgress()) is None
    assert asked == []


def test_they_are_recorded_with_their_limit(
    target: TargetModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_fake_profile(tmp_path, target.model.profile)
    designs = Designs((SPACE.designs[-1][-1], SPACE.designs[0][-1]), 1.0)
    write_target(tmp_path / "target.json", replace(target, designs=designs, notes=(f"{FILLED}: 2",)), FileModel())
    config = SearchConfig(target="fake", limits=Limits.of(latency_ms=1.0), space="compact")
    again = read_target(tmp_path / "target.json", config)
    assert again is not None
    assert (again[0].designs, again[0].notes) == (designs, (f"{FILLED}: 2",))
    other = read_target(tmp_path / "target.json", replace(config, limits=Limits.of(latency_ms=20.0)))
    assert other is not None
    assert (other[0].designs, other[0].notes) == (None, ())


def test_they_are_proposed_first_whatever_is_predicted_of_them() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    given = (SPACE.designs[-1][-1], SPACE.designs[2][-1])

    def nothing(choices: Choices) -> NDArray[np.bool_]:
        return np.zeros(len(choices), dtype=np.bool_)

    study = optuna.create_study(
        direction="maximize",
        sampler=make_sampler("surrogate", SamplerTask(space=SPACE, feasible=nothing, designs=given)),
    )
    for _ in given:
        trial = study.ask()
        SPACE.suggest(trial)
        study.tell(trial, 0.5)
    assert [architecture_of(t, SPACE) for t in study.trials] == list(given)


def test_what_values_are_worth_decides_on_proposals() -> None:
    """Short trainings here prefer small networks; by what is promised, as much as the limit allows is proposed."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def small(choices: Choices) -> NDArray[np.bool_]:
        return macs(choices) <= 60e6

    def proposed(worth: Worth | None) -> float:
        task = SamplerTask(space=SPACE, feasible=small, worth=worth, seed=0, settings=SurrogateSettings(startup=6))
        study = optuna.create_study(direction="maximize", sampler=make_sampler("surrogate", task))
        for _ in range(10):
            trial = study.ask()
            arch = SPACE.suggest(trial)
            study.tell(trial, 0.9 - 0.05 * float(np.log(macs(SPACE.choices([arch]))[0])))
        last = [architecture_of(t, SPACE) for t in study.trials[6:]]
        return float(np.median(macs(SPACE.choices([a for a in last if a]))))

    def enough(choices: Choices) -> NDArray[np.float64]:
        return np.full(len(choices), 20.0)

    assert proposed(worth_by_promise(SPACE, SIZE, enough)) > 2 * proposed(None)


def test_those_that_cannot_be_trained_in_time_are_left_out() -> None:
    designs = Designs((SPACE.designs[0][-1], SPACE.designs[-1][-1]), 1.0)
    assert trainable(None, SPACE, None) is None
    assert trainable(designs, SPACE, None) == designs.archs
    assert trainable(designs, SPACE, lambda c: macs(c) < 30e6) == designs.archs[1:]
    assert trainable(designs, SPACE, lambda c: macs(c) < 0) is None
