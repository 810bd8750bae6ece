"""How many validation examples candidates are compared on, and that these are the same for all of them."""

from dataclasses import replace

import numpy as np

from nas.data import ImageData, ImageSplit, Preprocess
from nas.data.images import image_input
from nas.evaluation.short_training import ENOUGH, ENOUGH_STD, ShortTraining, enough_to_compare
from nas.tasks import task_of
from nas.tasks.examples import examples_of
from tests.nas.detectors import rectangle_data
from tests.nas.executors.tasks import task


def tiny_images(labels: np.ndarray, *, balanced: bool = False) -> ImageData:
    """Images of 8 pixels, each with its number in its first two values."""
    numbers = np.arange(len(labels))
    images = np.zeros((len(labels), 8, 8, 3), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = numbers % 256, numbers // 256
    split = ImageSplit(images, labels.astype(np.int64), balanced=balanced)
    few = split.take(range(10))
    return ImageData(
        name="tiny", classes=("a", "b"), train=few, val=split, test=few,
        native_resolution=8, preprocess=Preprocess((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    )  # fmt: skip


def test_a_part_of_many_validation_images_is_enough() -> None:
    many = tiny_images(np.arange(ENOUGH + 1) % 2)
    assert enough_to_compare(many) == ENOUGH
    std = task_of(many).standard_error(0.5, ShortTraining(task().short.recipe, val_images=ENOUGH).validation(many))
    assert std is not None
    assert std <= ENOUGH_STD


def test_all_count_where_there_are_few_or_a_part_would_not_be_sure() -> None:
    assert enough_to_compare(tiny_images(np.arange(ENOUGH) % 2)) is None
    rare = np.arange(2 * ENOUGH) % 100 == 0
    assert enough_to_compare(tiny_images(rare, balanced=True)) is None, "50 images of a class that counts as a half"
    assert enough_to_compare(tiny_images(rare)) == ENOUGH
    boxes = rectangle_data()
    repeated = boxes.val.take([0] * (ENOUGH + 1))
    assert enough_to_compare(boxes.with_splits(train=boxes.train, val=repeated, test=boxes.test)) is None, (
        "nothing tells how sure a mean average precision is"
    )


def test_candidates_are_compared_on_the_same_ones_at_any_size() -> None:
    data = tiny_images(np.arange(300) % 2)
    examples = examples_of(data, image_input(8), val_images=40)
    short = ShortTraining(task().short.recipe, val_images=40)
    assert np.array_equal(examples.val.images, short.validation(data).images)  # type: ignore[attr-defined]
    larger = examples_of(data, image_input(16), val_images=40)
    assert np.array_equal(larger.val.labels, examples.val.labels)
    assert len(examples_of(data, image_input(8)).val) == 300
    assert len(ShortTraining(task().short.recipe).validation(data)) == 300


def test_an_evaluation_on_other_examples_is_another_one() -> None:
    whole = task(7)
    part = replace(whole, short=replace(whole.short, val_images=5000))
    assert part.to_json() != whole.to_json()
    assert "val_images" not in whole.to_json(), "what was recorded before there was a choice is still known"
