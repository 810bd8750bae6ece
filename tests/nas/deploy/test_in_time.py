"""Deployments are tried as far as the time that is left allows, by a clock that tests turn."""

import pytest

from nas.deploy.in_time import ATTEMPT, MEASURED, MEASURING, InTime


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(time_left: InTime, clock: Clock, kind: str, seconds: float) -> None:
    with time_left.timed(kind):
        clock.now += seconds


def test_a_further_part_fits_as_long_as_the_longest_of_its_kind_does() -> None:
    clock = Clock()
    time_left = InTime(lambda: 100.0 - clock.now, clock)
    assert time_left.fits(MEASURING), "nothing is known to be too long before there was one"
    spend(time_left, clock, MEASURING, 30.0)
    spend(time_left, clock, MEASURING, 10.0)
    assert time_left.longest_s(MEASURING) == 30.0
    assert time_left.fits(MEASURING)  # 60 s are left
    spend(time_left, clock, ATTEMPT, 31.0)
    assert not time_left.fits(MEASURING)  # 29 s are
    assert not time_left.fits(ATTEMPT, MEASURING)


@pytest.mark.parametrize(
    ("budget_s", "fits"), [(4 + 4 + 2 * MEASURED * 4, True), (4 + 4 + 2 * MEASURED * 4 - 1, False)]
)
def test_a_further_deployment_needs_time_to_be_measured_with_the_others(budget_s: float, fits: bool) -> None:
    clock = Clock()
    time_left = InTime(lambda: budget_s - clock.now, clock)
    spend(time_left, clock, ATTEMPT, 4.0)
    assert time_left.fits_attempt(under_way=1) is fits


def test_without_a_limit_all_fits() -> None:
    clock = Clock()
    time_left = InTime(clock=clock)
    spend(time_left, clock, ATTEMPT, 1e9)
    assert time_left.fits_attempt(under_way=5)


def test_what_failed_took_its_time_too() -> None:
    clock = Clock()
    time_left = InTime(lambda: 1.0, clock)

    def fails() -> None:
        with time_left.timed(ATTEMPT):
            clock.now += 5.0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert not time_left.fits(ATTEMPT)
