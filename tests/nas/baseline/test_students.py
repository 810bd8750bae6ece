"""How long a student's training takes, and how often its teacher is asked."""

import pytest

from nas.baseline.students import LEAST_VIEWS, REPEATS, EpochTime, views_of


@pytest.mark.parametrize("epochs", range(1, 61))
def test_long_trainings_ask_the_teacher_in_a_part_of_their_epochs(epochs: int) -> None:
    views = views_of(epochs)
    assert views == epochs or LEAST_VIEWS <= views < epochs <= REPEATS * views
    assert views_of(REPEATS * LEAST_VIEWS) == LEAST_VIEWS
    assert views_of(LEAST_VIEWS) == LEAST_VIEWS


def test_epochs_fill_the_time_they_have() -> None:
    time = EpochTime(own_s=2.0, answers_s=3.0)
    assert time.of(3) == 15.0
    assert time.of(30) == 60.0 + 30.0
    for seconds in (5.0, 16.0, 30.0, 90.0, 95.0):
        epochs = time.within(seconds, most=100)
        assert time.of(epochs) <= seconds
        assert all(time.of(more) > seconds for more in range(epochs + 1, 101))
    assert time.within(4.9, most=100) == 0
    assert time.within(1e9, most=40) == 40
