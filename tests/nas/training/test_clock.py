"""The time that a training keeps back for its last validation."""

import pytest

from nas.training.clock import Clock


def test_a_first_step_that_takes_long_tells_nothing_of_a_validation() -> None:
    clock = Clock(limit_s=36.0, val_examples=4500)
    clock.stepped(0.6, 33)
    assert not clock.is_out
    assert clock.reserve_s == 0.0
    assert clock.longest_step_s == 0.6
    assert clock.progress(0.01) == pytest.approx(0.01, abs=0.001)
    for seconds in (0.05, 0.06, 0.04):
        clock.stepped(seconds, 64)
    assert clock.longest_step_s == 0.06
    assert clock.reserve_s == pytest.approx(0.5 * 4500 * 0.05 / 64)


def test_a_first_step_that_takes_most_of_the_limit_is_the_last() -> None:
    clock = Clock(limit_s=30.0, val_examples=10)
    clock.stepped(31.0, 16)
    assert clock.is_out


def test_a_guess_does_not_end_a_training_that_has_hardly_begun() -> None:
    """Batches of 32 at a slow moment: by their time per image, validation would take all of the limit."""
    clock = Clock(limit_s=12.0, val_examples=4500)
    for _ in range(5):
        clock.stepped(0.2, 32)
    assert clock.reserve_s == pytest.approx(3.0)
    assert not clock.is_out


def test_what_a_validation_took_is_kept_back_for_the_last_one() -> None:
    clock = Clock(limit_s=10.0, val_examples=4500)
    clock.stepped(0.1, 64)
    clock.stepped(0.1, 64)
    clock.validated(2.0)
    clock.validated(1.0)
    assert clock.reserve_s == pytest.approx(2.2)
    before = clock.is_out
    clock.validated(10.0)
    assert (before, clock.is_out) == (False, True)
    assert clock.progress(0.2) == 1.0


def test_without_a_limit_a_training_is_never_out_of_time() -> None:
    clock = Clock(limit_s=None, val_examples=4500)
    for _ in range(2):
        clock.stepped(1e6, 1)
    assert not clock.is_out
    assert clock.reserve_s == 0.0
    assert clock.progress(0.3) == 0.3
