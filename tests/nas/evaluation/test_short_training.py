"""How many validation examples candidates are compared on, and that these are the same for all of them."""

from dataclasses import replace

import numpy as np
import pytest

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
    few = split.take(np.arange(10))
    return ImageData(
        name="tiny", classes=("a", "b"), train=few, val=split, test=few,
        native_resolution=8, preprocess=Preprocess((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    )  # fmt: skip


def test_a_part_of_many_validation_images_is_enough() -> None:
    many = tiny_images(np.arange(2 * ENOUGH + 1) // ENOUGH % 2)
    assert enough_to_compare(many) == 2
    short = ShortTraining(task().short.recipe, validate_every=2)
    part = examples_of(many, image_input(8), validate_every=2).val
    assert len(part) == ENOUGH + 1
    assert np.shares_memory(part.images, many.val.images), "nothing is copied"
    std = short.standard_error(0.5, many)
    assert std is not None
    assert std <= ENOUGH_STD
    assert std == pytest.approx(task_of(many).standard_error(0.5, part), rel=0.01)


def test_all_count_where_there_are_few_or_a_part_would_not_be_sure() -> None:
    assert enough_to_compare(tiny_images(np.arange(2 * ENOUGH - 1) % 2)) == 1
    rare = np.arange(4 * ENOUGH) % 100 == 0
    assert enough_to_compare(tiny_images(rare, balanced=True)) == 1, "200 images of a class that counts as a half"
    assert enough_to_compare(tiny_images(rare)) == 4
    boxes = rectangle_data()
    repeated = boxes.val.take([0] * (2 * ENOUGH))
    assert enough_to_compare(boxes.with_splits(train=boxes.train, val=repeated, test=boxes.test)) == 1, (
        "nothing tells how sure a mean average precision is"
    )


def test_candidates_are_compared_on_the_same_ones_at_any_size() -> None:
    data = tiny_images(np.arange(300) % 2)
    examples, larger = (examples_of(data, image_input(side), validate_every=7) for side in (8, 16))
    assert len(examples.val) == 43
    assert np.array_equal(examples.val.images, data.val.images[::7])
    assert np.array_equal(larger.val.labels, examples.val.labels)
    assert len(examples_of(data, image_input(8)).val) == 300


def test_an_evaluation_on_other_examples_is_another_one() -> None:
    whole = task(7)
    part = replace(whole, short=replace(whole.short, validate_every=2))
    assert part.to_json() != whole.to_json()
    assert "validate_every" not in whole.to_json(), "what was recorded before there was a choice is still known"
