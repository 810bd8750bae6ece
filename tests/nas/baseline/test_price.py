"""Prices in epochs of the baseline's training."""

import pytest

from nas.baseline.price import library_price, student_price

MACS = [{"keep": 100, "conv3": 50}, {"keep": 300, "conv3": 150, "drop": 0}]


def test_a_student_as_large_as_the_baseline_costs_a_training_and_an_answer() -> None:
    assert student_price(whole=400, own=400, epochs=6) == pytest.approx(6 * 4 / 3)
    assert student_price(whole=400, own=100, epochs=1) == pytest.approx((400 + 3 * 100) / (3 * 400))
    assert student_price(whole=400, own=400, epochs=0) == 0


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
