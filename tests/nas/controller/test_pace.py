"""How fast this host trains: measured once, read afterwards, and forgotten where trainings show that it is wrong."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nas.controller.budget import Budget
from nas.controller.config import SearchConfig
from nas.controller.pace import Pace, forget_wrong_pace, host_pace, rounded_pace
from nas.controller.plan_record import search_plan
from nas.controller.recipes import OVERHEAD, Recipes
from nas.controller.records import Trained
from nas.controller.relimit import take_over
from nas.controller.run_folder import RunFolder
from nas.controller.training_times import doubt_pace
from nas.controller.values import Evaluated
from nas.limits import Limits
from nas.training.config import TrainConfig
from nas.training.precision import faster
from search_spaces import load_search_space
from tests.nas.executors.tasks import tiny_data

SPACE = load_search_space("mobile").restrict("resolution", [32])
SLOW = Pace("fp32", 4.0)


def test_a_pace_is_measured_once_and_then_read(tmp_path: Path) -> None:
    first = host_pace(SPACE, (10,), 4, tmp_path)
    assert first.precision in ("fp32", "bf16")
    assert first.factor == rounded_pace(first.factor)
    (file,) = tmp_path.iterdir()
    (key, entry), *others = json.loads(file.read_text()).items()
    assert not others
    other = "bf16" if first.precision == "fp32" else "fp32"
    file.write_text(json.dumps({key: {**entry, "precision": other, "factor": 8.0}}))
    assert host_pace(SPACE, (10,), 4, tmp_path) == Pace(other, 8.0), "what is known is not measured again"
    assert host_pace(SPACE, (10,), 4, tmp_path, fresh_s=3600.0) == Pace(other, 8.0), "it is fresh"
    file.write_text(json.dumps({key: {"precision": other, "factor": 64.0}}))
    assert host_pace(SPACE, (10,), 4, tmp_path) == Pace(other, 64.0), "any age will do"
    assert host_pace(SPACE, (10,), 4, tmp_path, fresh_s=3600.0).factor < 64.0, "nobody knows how old it was"
    for damage in ({"precision": "fp8", "factor": 1.0}, {"precision": "fp32", "factor": -1.0}):
        file.write_text(json.dumps({key: damage}))
        again = host_pace(SPACE, (10,), 4, tmp_path)
        assert again.precision in ("fp32", "bf16")
        assert again.factor > 0


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Under which a pace in batches of 4 is kept."""
    folder = tmp_path_factory.mktemp("cache")
    host_pace(SPACE, (10,), 4, folder)
    (found,) = json.loads((folder / "training-pace.json").read_text())
    return str(found)


def cache_with(pace: Pace, key: str, folder: Path) -> Path:
    """A user's cache that holds this pace and another space's."""
    path = folder / "training-pace.json"
    path.write_text(json.dumps({key: asdict(pace), "another": asdict(pace)}))
    return path


def test_a_pace_that_trainings_contradict_is_forgotten(key: str, tmp_path: Path) -> None:
    path = cache_with(SLOW, key, tmp_path)
    before = path.read_text()
    for ratios in ([0.2, 0.2], [0.7, 0.2, 1.3], [1.4, 1.4, 9.0], []):
        assert forget_wrong_pace(SPACE, 4, SLOW, ratios, tmp_path) is None, "too few, or within a step"
    assert forget_wrong_pace(SPACE, 64, SLOW, [0.2] * 3, tmp_path) is None, "nothing is known of such batches"
    assert forget_wrong_pace(SPACE, 4, Pace("bf16", 1.0), [0.2] * 3, tmp_path) is None, "the cache's is newer"
    assert path.read_text() == before
    for ratio in (0.25, 2.0):
        path.write_text(before)
        assert forget_wrong_pace(SPACE, 4, SLOW, [ratio, 1.0, ratio], tmp_path) == ratio
        assert list(json.loads(path.read_text())) == ["another"]


def test_a_search_doubts_the_pace_by_its_own_trainings(key: str, tmp_path: Path) -> None:
    config = SearchConfig(limits=Limits.of(latency_ms=5.0))
    base = TrainConfig(precision="fp32", batch_size=4)
    recipes = Recipes(config=config, space=SPACE, data=tiny_data(), base=base, pace=SLOW)
    archs = SPACE.anchors[:1] * 3

    def trained(ratio: float) -> list[Evaluated]:
        return [Evaluated(a, i, 0.5, 1.0, ratio * OVERHEAD * recipes.image_s(a)) for i, a in enumerate(archs)]

    path = cache_with(SLOW, key, tmp_path)
    before = path.read_text()
    assert doubt_pace(recipes, trained(1.0), folder=tmp_path) is None
    elsewhere = replace(recipes, config=replace(config, ray="auto"))
    assert doubt_pace(elsewhere, trained(0.25), folder=tmp_path) is None
    estimated = [replace(e, seconds_per_image=None) for e in trained(0.25)]
    assert doubt_pace(recipes, estimated, folder=tmp_path) is None
    full_s = 3 * len(recipes.data.train) * OVERHEAD * recipes.image_s(archs[0])
    cut = [(a, Trained(accuracy=0.5, epochs=2, seconds=full_s / 4)) for a in archs]
    assert doubt_pace(recipes, estimated, cut, 3, tmp_path) is None, "the clock ended them"
    assert path.read_text() == before
    remark = doubt_pace(recipes, trained(0.25), folder=tmp_path)
    assert remark is not None
    assert "0.25 times as long" in remark
    path.write_text(before)
    assert doubt_pace(recipes, estimated, [(a, replace(t, epochs=3)) for a, t in cut], 3, tmp_path)
    assert path.read_text() != before


def test_a_run_keeps_the_pace_it_was_planned_with(tmp_path: Path) -> None:
    """Also when the cache has forgotten it, when the budget is another one, and for another limit."""
    data = tiny_data()

    def make(pace: Pace | None) -> Recipes:
        base = TrainConfig(precision="fp32")
        return Recipes(
            config=SearchConfig(limits=Limits.of(latency_ms=5.0)), space=SPACE, data=data, base=base, pace=pace or SLOW
        )

    old, new = RunFolder(tmp_path), RunFolder(tmp_path / "limits" / "4ms")
    new.path.mkdir(parents=True)
    marks = search_plan(old, Budget(100.0), make, baselines=False).marks
    take_over(old, new)
    for folder in (old, new):
        plan = search_plan(folder, Budget(200.0), lambda pace: make(pace or Pace("bf16", 1.0)), baselines=False)
        assert plan.recipes.pace == SLOW
        assert plan.marks != marks


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {"precision": "bf16"}}'])
def test_a_damaged_file_is_written_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "training-pace.json").write_text(content)
    host_pace(SPACE, (10,), 4, tmp_path)
    assert len(json.loads((tmp_path / "training-pace.json").read_text())) == 1


@pytest.mark.parametrize(
    ("ratio", "rounded"), [(1.1, 1.0), (0.9, 1.0), (2.2, 2.0), (3.7, 4.0), (0.26, 0.25), (1e9, 64.0), (0, 1 / 64)]
)
def test_paces_are_rounded_to_half_octaves(ratio: float, rounded: float) -> None:
    assert rounded_pace(ratio) == pytest.approx(rounded)
    assert rounded_pace(1.4) == pytest.approx(math.sqrt(2))


def test_bf16_has_to_be_worth_its_rounding() -> None:
    assert faster({"fp32": 1.0, "bf16": 0.95}) == "fp32"
    assert faster({"fp32": 1.0, "bf16": 0.5}) == "bf16"
