"""What the comparison of steps makes of its rounds."""

from experiments.step_memory import median_steps_ms, rounds_ms
from search_spaces import load_search_space


def test_each_design_has_the_median_of_its_rounds_by_kind() -> None:
    rounds = [[[4.0, 9.0], [1.0, 2.0]], [[6.0, 7.0], [3.0, 4.0]], [[5.0, 8.0], [2.0, 3.0]]]
    assert rounds_ms(False, rounds) == [5.0, 8.0]
    assert rounds_ms(True, rounds) == [2.0, 3.0]


def test_steps_of_every_design_are_timed() -> None:
    found = median_steps_ms(batch=2, steps=1)
    assert len(found) == len(load_search_space("compact").designs)
    assert min(found) > 0
