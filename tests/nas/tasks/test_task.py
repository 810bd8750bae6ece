"""What every task promises (`contract`), asked of every task, and what is particular to ours."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from experiments.stick_figures import figures
from nas.cli.search import search
from nas.controller.config import SearchConfig
from nas.controller.inputs import check_estimator, space_for
from nas.data import ImageData, ImageSplit, Preprocess
from nas.errors import UnknownNameError, UserError
from nas.evaluation.estimators import EstimatorSetting, choose_estimator, make_estimator
from nas.evaluation.short_training import ShortTraining
from nas.executors.shared_data import share
from nas.limits import Limits
from nas.tasks import TASKS, task_named, task_of
from nas.tasks.detection.data import DetectionData
from nas.tasks.detection.task import Detection
from nas.tasks.pose.data import PoseData
from nas.training.recipe import Recipe
from search_spaces import BUNDLED_SPACES, load_search_space, resolve_space
from tests.nas.evaluation.small import small_space
from tests.nas.tasks import contract
from tests.nas.tasks.coco import write_coco
from tests.nas.tasks.detection.rectangles import rectangles
from tests.nas.tasks.text.sentences import text_data

SIZE = 128
PREPROCESS = Preprocess((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def image_data() -> ImageData:
    def split(seed: int) -> ImageSplit:
        rng = np.random.default_rng(seed)
        return ImageSplit(rng.integers(0, 255, (8, SIZE, SIZE, 3), np.uint8), np.arange(8) % 2)

    return ImageData("noise", ("a", "b"), split(0), split(1), split(2), SIZE, PREPROCESS)


def box_data() -> DetectionData:
    train, val, test = (rectangles(8, seed, SIZE) for seed in range(3))
    return DetectionData("rectangles", ("red", "blue"), train, val, test, SIZE, PREPROCESS)


def pose_data() -> PoseData:
    train, val, test = (figures(8, seed, SIZE) for seed in range(3))
    return PoseData("figures", ("person",), train, val, test, SIZE, PREPROCESS)


ELSEWHERE = Detection()
DATA: dict[str, Any] = {
    "classification": image_data, "detection": box_data, "pose": pose_data, "text": text_data,
}  # fmt: skip
IMAGES = ("classification", "detection", "pose")
every_task = pytest.mark.parametrize("name", TASKS)


def small_part(data: Any) -> Any:
    """The task's own space, for examples of the size at hand."""
    task = task_of(data)
    space = resolve_space(task.default_space)
    return space.restrict("resolution", [SIZE]) if task.name in IMAGES else task.searchable(space, data, {})


@every_task
@pytest.mark.parametrize(
    "check",
    [contract.check_names, contract.check_inputs, contract.check_learning_and_evaluating, contract.check_scores],
    ids=lambda check: check.__name__,
)
def test_a_task_keeps_its_promises(name: str, check: Callable[..., None]) -> None:
    data = DATA[name]()
    check(TASKS[name], data, small_part(data))


@every_task
def test_a_task_comes_with_recipes_and_data(name: str, tmp_path: Path) -> None:
    task, data = TASKS[name], DATA[name]()
    assert task.name == name
    assert BUNDLED_SPACES[task.default_space]().task == name
    contract.check_recipes(task)
    contract.check_splits(task, data)
    contract.check_floors(task, data)
    contract.check_data_reach_other_processes(task, data, tmp_path)


@every_task
def test_a_task_knows_its_part_of_a_bundle(name: str, tmp_path: Path) -> None:
    data = DATA[name]()
    contract.check_artifacts(TASKS[name], data, small_part(data), tmp_path)


def test_recipes_have_names_of_their_own() -> None:
    names = [name for task in TASKS.values() for name in task.recipes]
    assert len(names) == len(set(names))


def test_images_without_boxes_reach_other_processes(tmp_path: Path) -> None:
    nothing = rectangles(3, 0, SIZE, most=0)
    data = DetectionData("n", ("red", "blue"), nothing, nothing.take([]), nothing, SIZE, PREPROCESS, flip_ok=False)
    loaded = share(data, tmp_path / "data").load()
    assert isinstance(loaded, DetectionData)
    assert not loaded.flip_ok
    for split in contract.SPLITS:
        assert contract.same(TASKS["detection"], getattr(data, split), getattr(loaded, split))


@pytest.mark.parametrize("name", IMAGES)
def test_resized_copies_stay_in_their_process(name: str) -> None:
    data = DATA[name]()
    alone = len(pickle.dumps(data))
    resized = data.at("val", 64)
    assert data.at("val", 64) is resized
    assert len(pickle.dumps(data)) == alone
    few = data.with_splits(train=data.train, val=data.val.some(1), test=data.test)
    assert len(few.at("val", 64)) == 1, "the copies of other examples are not its own"


def test_the_command_line_knows_every_task() -> None:
    (option,) = (p for p in search.params if p.name == "task")
    context = click.Context(search)
    for name in TASKS:
        assert name in str(option.help)  # type: ignore[attr-defined]
        assert option.type.convert(name, option, context) == name
    with pytest.raises(UnknownNameError, match="unknown task 'detektion'"):
        option.type.convert("detektion", option, context)


def test_a_task_is_found_by_reference() -> None:
    assert task_named(f"{__name__}:ELSEWHERE") is ELSEWHERE
    with pytest.raises(UserError, match=r"there is no task 'no\.such:TASK': No module named 'no'"):
        task_named("no.such:TASK")
    with pytest.raises(UserError, match="has no attribute 'ABSENT'"):
        task_named(f"{__name__}:ABSENT")
    with pytest.raises(UserError, match="is no task: it has no accuracy, "):
        task_named(f"{__name__}:SIZE")


@every_task
def test_recipes_are_read_back(name: str) -> None:
    recipe = TASKS[name].recipe(epochs=7, optimizer={"lr": 0.125}, seed=4)
    assert (recipe.epochs, recipe.optimizer.lr, recipe.seed) == (7, 0.125, 4)
    assert recipe.optimizer.name == TASKS[name].recipe().optimizer.name
    assert Recipe.of(json.loads(json.dumps(recipe.to_json())), "file") == recipe
    with pytest.raises(UserError, match=r"unknown recipe key 'optimizer\.rate'"):
        TASKS[name].recipe(optimizer={"rate": 0.1})


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_searched_follows_the_data_and_the_user(name: str) -> None:
    data = DATA[name]()
    task, space = task_of(data), load_search_space(TASKS[name].default_space)
    assert task.searchable(space, data, {}).restrictions["resolution"][-1] == SIZE
    assert task.searchable(space, data, {"resolution": [224]}).restrictions == {"resolution": (224,)}
    both = task.searchable(space, data, {"stem.width": [32]}).restrictions
    assert both["stem.width"] == (32,)
    assert max(both["resolution"]) == SIZE
    with pytest.raises(UserError, match="33"):
        task.searchable(space, data, {"resolution": [33]})


def raw_of(scores: list[float], side: float = 40.0) -> np.ndarray:
    """(1, A, 6) raw outputs of our head at 128 px: object i, of class 0, with this score, around cell 40 * i."""
    raw = np.full((1, 336, 6), -12.0, np.float32)
    raw[..., :4] = np.log(np.expm1(side / 2 / 8))
    for i, score in enumerate(scores):
        raw[0, 40 * i, 4] = np.log(score / (1 - score))
    return raw


def test_detections_agree_where_only_last_digits_differ() -> None:
    space = load_search_space("detect")
    signature = space.signature(space.replace(space.anchors[0], resolution=SIZE), (2,))

    def agreement(got: np.ndarray, expected: np.ndarray) -> float:
        return TASKS["detection"].agreement(got, expected, signature)

    assert agreement(raw_of([0.9, 0.5]), raw_of([0.9, 0.5])) == 1.0
    assert agreement(raw_of([0.9, 0.1001]), raw_of([0.9, 0.0999])) == 1.0, "about as sure"
    assert agreement(raw_of([0.9, 0.0501]), raw_of([0.9, 0.0499])) == 1.0, "nobody was sure"
    assert agreement(raw_of([0.9, 0.5]), raw_of([0.9])) == 0.0, "one is missing"
    assert agreement(raw_of([0.9]), raw_of([0.9, 0.5])) == 0.0, "one is new"
    assert agreement(raw_of([0.9], side=10), raw_of([0.9])) == 0.0, "another place"
    other = raw_of([0.9])
    other[..., [4, 5]] = other[..., [5, 4]]
    assert agreement(other, raw_of([0.9])) == 0.0, "another class"
    both = np.concatenate([raw_of([0.9]), raw_of([0.9])])
    assert agreement(both, np.concatenate([raw_of([0.9]), other])) == 0.5


def test_folders_are_data(tmp_path: Path) -> None:
    folder = write_coco(tmp_path / "coco", {"train": 6, "val": 4}, 64)
    data = TASKS["detection"].load(str(folder), seed=0)
    assert (data.task, data.classes) == ("detection", ("red", "blue"))
    assert TASKS["classification"].load("digits", seed=0).task == "classification"


def test_a_search_follows_its_task() -> None:
    plain = SearchConfig(limits=Limits.of(latency_ms=10))
    assert (plain.task, plain.space, plain.data) == ("classification", "compact", "digits")
    boxes = SearchConfig(task="detection", data="here", limits=Limits.of(latency_ms=25, min_accuracy=0.5))
    assert boxes.space == "detect"
    assert boxes.run_dir.name == "detection-local-25ms-50pct"
    assert boxes.limits.text == "at most 25 ms, at least 50 % mAP@50"
    assert space_for(boxes).task == "detection"
    assert boxes.identity() != SearchConfig(data="here", limits=Limits.of(latency_ms=25, min_accuracy=0.5)).identity()
    with pytest.raises(UserError, match="nothing says what to learn detection from"):
        SearchConfig(task="detection", limits=Limits.of(latency_ms=25))
    with pytest.raises(UserError, match="networks of space 'mixed' are for classification, not for detection"):
        space_for(SearchConfig(task="detection", data="here", space="mixed", limits=Limits.of(latency_ms=25)))
    with pytest.raises(UserError, match="networks of space 'detect' are for detection"):
        space_for(SearchConfig(space="detect", limits=Limits.of(latency_ms=25)))


@pytest.mark.parametrize("estimator", TASKS["detection"].estimators)
def test_estimators_evaluate_detectors(estimator: str) -> None:
    data, space = box_data(), small_space("detect", (SIZE,))
    task, rng = task_of(data), np.random.default_rng(1)
    candidate, *others = (space.architecture(row) for row in space.sample(13, rng))
    recipe = task.recipe(epochs=1, batch_size=4, precision="fp32")
    setting = EstimatorSetting(
        space=space, data=data, short=lambda arch: ShortTraining(recipe),
        labels=[(arch, 0.01 * at) for at, arch in enumerate(others)], device="cpu",
    )  # fmt: skip
    (found,) = make_estimator(estimator, setting).estimate([candidate])
    assert found.failure is None
    assert found.value is not None
    assert np.isfinite(found.value)
    assert (found.std is not None) == (estimator == "predictor"), "nothing is known of a mean average precision's error"


def test_estimators_that_a_task_has_no_use_for() -> None:
    boxes = SearchConfig(task="detection", data="here", limits=Limits.of(latency_ms=25), estimator="supernet")
    with pytest.raises(UserError, match="the estimator 'supernet' cannot evaluate networks for detection"):
        check_estimator(boxes)
    for trainings in (1, 50, 1000):
        name, why = choose_estimator(float(trainings), "2 threads", short_s=1.0)
        assert name in TASKS["detection"].estimators
        assert "supernet" not in why
