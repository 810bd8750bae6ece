"""Prices in epochs of the baseline's training."""

from functools import partial

import pytest

from nas.baseline.finals import MOST_EPOCHS, epochs_within
from nas.baseline.price import library_price, student_price
from nas.baseline.students import asked_epochs
from nas.training.recipe import Recipe

MACS = [{"keep": 100, "conv3": 50}, {"keep": 300, "conv3": 150, "drop": 0}]


def test_a_student_costs_its_training_and_the_baselines_answers() -> None:
    assert student_price(whole=400, own=400, epochs=6, asked=6) == pytest.approx(6 * 4 / 3)
    assert student_price(whole=400, own=100, epochs=1, asked=1) == pytest.approx((400 + 3 * 100) / (3 * 400))
    assert student_price(whole=400, own=100, epochs=12, asked=3) == pytest.approx((3 * 400 + 12 * 300) / (3 * 400))
    assert student_price(whole=400, own=400, epochs=0, asked=0) == 0


def test_a_library_costs_its_options_and_the_baselines_answers() -> None:
    one_epoch = (400 + 3 * (50 + 150)) / (3 * 400)
    assert library_price(MACS, [], examples=1000, seen=1000) == pytest.approx(one_epoch)
    assert library_price(MACS, [], examples=1000, seen=2500) == pytest.approx(2.5 * one_epoch)
    bare = [{"keep": 100}, {"keep": 300}]
    assert library_price(bare, [], examples=10, seen=10) == pytest.approx(1 / 3), "the baseline answers all the same"


def test_narrower_units_are_taught_themselves() -> None:
    narrow = [{"keep": 25, "conv3": 12}, {"keep": 75}]
    more = library_price(MACS, [narrow, narrow], examples=10, seen=10) - library_price(MACS, [], examples=10, seen=10)
    assert more == pytest.approx(2 * (25 + 12 + 75) / 400)


def recipe(views: int) -> Recipe:
    return Recipe.model_validate({"batch_size": 64, "least_steps": 100, "distillation": {"views": views}})


def test_the_baseline_answers_once_for_what_comes_again() -> None:
    asked = partial(asked_epochs, recipe(views=8), 6400)
    assert [asked(epochs) for epochs in (0, 3, 8, 20)] == [0, 3, 8, 8]
    assert [asked(epochs, before=3) for epochs in (2, 3, 5, 20)] == [0, 0, 2, 5]
    assert asked(20, before=10) == 0
    assert [asked_epochs(recipe(views=0), 6400, epochs, before=3) for epochs in (0, 3, 20)] == [0, 3, 20]


def test_answers_to_batches_of_another_size_are_no_answers() -> None:
    """A training of so few steps has smaller batches."""
    short, long = (recipe(8).changed(epochs=epochs).batch_for(640) for epochs in (5, 20))
    assert short < long
    assert asked_epochs(recipe(8), 640, 20, before=5) == 8


def test_the_most_epochs_within_the_time() -> None:
    asked = partial(asked_epochs, recipe(views=8), 6400)
    assert epochs_within(15.0, 1.0, 2.0, asked) == 5
    assert epochs_within(14.9, 1.0, 2.0, asked) == 4
    assert epochs_within(36.0, 1.0, 2.0, asked) == 20
    assert epochs_within(36.0, 1.0, 2.0, lambda epochs: epochs) == 12
    assert epochs_within(0.5, 1.0, 2.0, asked) == 0
    assert epochs_within(1e6, 1.0, 2.0, asked) == MOST_EPOCHS
