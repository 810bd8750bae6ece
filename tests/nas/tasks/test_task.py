"""What every task promises, asked of every task."""

import pickle
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from nas.cli.search import search
from nas.controller.config import SearchConfig
from nas.controller.opening import check_estimator, space_for
from nas.data import ImageData, ImageSplit, Preprocess
from nas.errors import UnknownNameError, UserError
from nas.evaluation.estimators import ESTIMATORS, EstimatorSetting, choose_estimator, make_estimator
from nas.evaluation.short_training import ShortTraining
from nas.evaluation.supernet.config import SupernetConfig
from nas.evaluation.zero_cost import PROXIES, candidate_scores
from nas.executors.base import without_cache
from nas.executors.shared_data import share
from nas.limits import Limits
from nas.tasks import TASKS, TaskData, baseline_named, task_named, task_of
from nas.tasks.detection.data import DetectionData, DetectionSplit
from nas.tasks.detection.task import Detection
from nas.training.config import TrainConfig
from search_spaces import SEARCH_SPACES, Architecture, load_search_space
from tests.nas.evaluation.small import small_space
from tests.nas.tasks.coco import write_coco
from tests.nas.tasks.detection.rectangles import rectangles

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


ELSEWHERE = Detection()
DATA: dict[str, Any] = {"classification": image_data, "detection": box_data}
every_task = pytest.mark.parametrize("name", TASKS)


def typical(data: TaskData) -> Architecture:
    """The cheapest of a few networks of the task's own space."""
    space = load_search_space(task_of(data).default_space).restrict("resolution", [SIZE])
    rows = space.sample(32, np.random.default_rng(0))
    return space.architecture(rows[space.costs(rows, data.output_size)["macs"].argmin()])


def same(a: Any, b: Any) -> bool:
    """Whether two splits hold the same."""
    if isinstance(a, DetectionSplit):
        pairs = zip(a.boxes, b.boxes, strict=True)
        fields = ("xyxy", "classes", "crowd")
        boxes = all(np.array_equal(getattr(x, f), getattr(y, f)) for x, y in pairs for f in fields)
        return boxes and np.array_equal(a.extents, b.extents) and np.array_equal(a.images, b.images)
    return np.array_equal(a.labels, b.labels) and np.array_equal(a.images, b.images)


@every_task
def test_names_and_tables_fit(name: str) -> None:
    task = TASKS[name]
    assert task.name == name == DATA[name]().task
    assert SEARCH_SPACES[task.default_space]().task == name
    assert set(task.estimators) <= set(ESTIMATORS)
    assert set(task.proxies) <= set(PROXIES)
    assert all(baseline_named(network) is model for network, model in task.baselines.items())
    for low, high in (task.shape.short_epochs, task.shape.final_epochs):
        assert 1 <= low <= high
    assert task.recipe(seed=3).seed == 3


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
    from dataclasses import asdict

    recipe = TASKS[name].recipe(epochs=7, lr=0.125, seed=4)
    assert isinstance(recipe, TrainConfig)
    assert TASKS[name].recipe(**asdict(recipe)) == recipe


@every_task
@pytest.mark.parametrize("empty", [False, True])
def test_data_reach_other_processes(name: str, empty: bool, tmp_path: Path) -> None:
    data = DATA[name]()
    if empty and isinstance(data, DetectionData):  # images without any box, and a split without images
        nothing = rectangles(3, 0, SIZE, most=0)
        data = DetectionData("n", ("red", "blue"), nothing, nothing.take([]), nothing, SIZE, PREPROCESS, flip_ok=False)
    loaded = share(data, tmp_path / "data").load()
    assert (loaded.task, loaded.name, loaded.classes) == (name, data.name, data.classes)
    assert (loaded.preprocess, loaded.flip_ok) == (data.preprocess, data.flip_ok)
    assert all(same(getattr(data, split), getattr(loaded, split)) for split in ("train", "val", "test"))
    data.at("val", 64)
    sent = pickle.loads(pickle.dumps(without_cache(data)))  # noqa: S301
    assert same(sent.val, data.val)
    assert not sent._resized


@every_task
def test_a_network_is_trained_and_judged_the_same_everywhere(name: str) -> None:
    import torch

    data = DATA[name]()
    task, arch = task_of(data), typical(data)
    space = load_search_space(arch.space)
    torch.manual_seed(0)
    network = space.build(arch, data.output_size)
    recipe = task.recipe(epochs=1, batch_size=4, precision="fp32")
    result = task.train(network, data.train, data.val, recipe, preprocess=PREPROCESS)
    assert len(result.curve) == 1
    assert 0 <= result.accuracy <= 1
    in_torch = task.accuracy(network, data.val, PREPROCESS)
    assert in_torch == pytest.approx(result.accuracy, abs=1e-6)

    def run(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return network(torch.from_numpy(images)).numpy()

    signature = space.signature(arch, data.output_size)
    again = task.accuracy_in_runtime(run, data.val, PREPROCESS, signature, batch=3)
    assert again == pytest.approx(in_torch, abs=1e-3)
    raw = run(data.inputs(data.val))
    nearly = raw + np.float32(1e-6)
    assert task.agreement(raw, nearly, signature) == 1.0


@every_task
def test_data_are_given_as_a_network_takes_them(name: str) -> None:
    data = DATA[name]()
    task, arch = task_of(data), typical(data)
    spec = load_search_space(arch.space).signature(arch, data.output_size).input
    split = data.for_input("train", spec)
    assert split.input == spec
    inputs = data.inputs(split.some(3))
    assert inputs.shape == spec.batched(3)
    assert inputs.dtype == np.dtype(spec.dtype)
    assert task.input_label(spec) == f"{SIZE} px"


@every_task
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


@every_task
def test_scores_need_no_training(name: str) -> None:
    data = DATA[name]()
    arch = typical(data)
    space = load_search_space(arch.space)
    scores = candidate_scores(space, data, arch, 4, 0)
    assert scores.shape == (len(task_of(data).proxies),)
    assert np.isfinite(scores).any()
    assert np.array_equal(scores, candidate_scores(space, data, arch, 4, 0), equal_nan=True)


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
    assert (plain.task, plain.space, plain.data) == ("classification", "mixed", "digits")
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
def test_estimators_judge_detectors(estimator: str) -> None:
    data, space = box_data(), small_space("detect", (SIZE,))
    task, rng = task_of(data), np.random.default_rng(1)
    candidate, *others = (space.architecture(row) for row in space.sample(13, rng))
    recipe = task.recipe(epochs=1, batch_size=4, precision="fp32")
    setting = EstimatorSetting(
        space=space, data=data, short=lambda arch: ShortTraining(recipe), supernet=SupernetConfig(),
        labels=[(arch, 0.01 * at) for at, arch in enumerate(others)], device="cpu",
    )  # fmt: skip
    (found,) = make_estimator(estimator, setting).estimate([candidate])
    assert found.failure is None
    assert found.value is not None
    assert np.isfinite(found.value)
    assert (found.std is not None) == (estimator == "predictor"), "nothing is known of a mean average precision's error"


def test_estimators_that_a_task_has_no_use_for() -> None:
    boxes = SearchConfig(task="detection", data="here", limits=Limits.of(latency_ms=25), estimator="supernet")
    with pytest.raises(UserError, match="the estimator 'supernet' cannot judge networks for detection"):
        check_estimator(boxes)
    for trainings in (1, 50, 1000):
        name, why = choose_estimator(float(trainings), "2 threads", short_s=1.0)
        assert name in TASKS["detection"].estimators
        assert "supernet" not in why
