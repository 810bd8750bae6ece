"""Choosing options: exact against every combination there is."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.baseline.selection import (
    ALIKE,
    exact_choice,
    exact_choices,
    greedy_choice,
    least,
    random_choices,
    solvable,
    total,
    uniform_choices,
)
from nas.networks.options import DROP, KEEP

NAMES = (KEEP, DROP, "conv3", "bottleneck")
amounts = st.floats(0, 10, allow_nan=False, width=32)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[dict[str, float]], list[dict[str, float]], float]:
    """Scores and costs of up to five units, and a limit."""
    units = draw(st.integers(1, 5))
    scores, costs = [], []
    for _ in range(units):
        names = [KEEP, *draw(st.lists(st.sampled_from(NAMES[1:]), unique=True))]
        scores.append({name: 0.0 if name == KEEP else draw(amounts) for name in names})
        costs.append({name: draw(amounts) for name in names})
    return scores, costs, draw(st.floats(0, 40))


@given(problems())
def test_no_combination_is_better_than_the_exact_choice(
    problem: tuple[list[dict[str, float]], list[dict[str, float]], float],
) -> None:
    scores, costs, limit = problem
    # the solver may miss a choice that costs the limit to the last bits
    within = [o for o in itertools.product(*scores) if total(costs, o) <= solvable(limit)]
    found = exact_choice(scores, costs, limit)
    if found is None:
        assert not within
        return
    assert total(costs, found) <= limit
    assert total(scores, found) <= min((total(scores, o) for o in within), default=math.inf) + 1e-5
    greedy = greedy_choice(scores, costs, limit)
    if greedy is not None:
        assert total(costs, greedy) <= limit
        assert total(costs, greedy) > solvable(limit) or total(scores, found) <= total(scores, greedy) + 1e-5


def test_a_choice_that_a_solver_would_take_for_one_within_the_limit() -> None:
    scores = [{KEEP: 0.0, DROP: 0.0, "conv3": 0.0}]
    costs = [{KEEP: 0.0, DROP: 0.0, "conv3": 1.4320178031921387}]
    assert exact_choice(scores, costs, 1.4320177443784576) in ((KEEP,), (DROP,))


@given(problems(), st.integers(1, 6))
def test_further_choices_are_unlike_and_no_better(
    problem: tuple[list[dict[str, float]], list[dict[str, float]], float], count: int
) -> None:
    scores, costs, limit = problem
    found = exact_choices(scores, costs, limit, count)
    assert len(found) <= count
    assert (least(costs) > solvable(limit)) or found
    sums = [total(scores, options) for options in found]
    assert all(later >= earlier - 1e-5 for earlier, later in itertools.pairwise(sums))
    for a, b in itertools.combinations(found, 2):
        assert sum(x == y for x, y in zip(a, b, strict=True)) <= ALIKE * len(scores)


@given(problems())
def test_plain_rules_keep_the_limit(problem: tuple[list[dict[str, float]], list[dict[str, float]], float]) -> None:
    scores, costs, limit = problem
    for choice in uniform_choices(scores, costs, limit):
        assert total(costs, choice.options) <= limit
        assert all(option in named for option, named in zip(choice.options, scores, strict=True))
    for options in random_choices(scores, costs, limit, np.random.default_rng(0), 20):
        assert total(costs, options) <= limit


def test_an_option_that_could_not_be_measured_is_never_chosen() -> None:
    scores = [{KEEP: 0.0, DROP: 0.1}, {KEEP: 0.0, DROP: 0.0}]
    costs = [{KEEP: 2.0, DROP: math.inf}, {KEEP: 2.0, DROP: 0.0}]
    assert exact_choice(scores, costs, 2.0) == (KEEP, DROP)
    assert exact_choice(scores, costs, 1.0) is None


def test_greedy_is_not_enough() -> None:
    """It takes the cheap change first, which is in vain where a dear one is needed anyway."""
    scores = [{KEEP: 0.0, DROP: 1.0}, {KEEP: 0.0, DROP: 3.0}]
    costs = [{KEEP: 2.0, DROP: 0.0}, {KEEP: 5.0, DROP: 0.0}]
    greedy, exact = greedy_choice(scores, costs, 3.0), exact_choice(scores, costs, 3.0)
    assert greedy is not None
    assert exact is not None
    assert total(scores, greedy) == pytest.approx(4.0)
    assert total(scores, exact) == pytest.approx(3.0)
