"""Which option for which unit: exact choices under a limit, by mixed-integer programming, and plain ones beside them.

Puzzle (Bercovich et al. 2024, https://arxiv.org/abs/2411.19146, section 4) chooses so among blocks of language models:
of the sums of scores the least, under a sum of times. Sums are only proposals: several different ones are worth trying.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from nas.networks.options import DROP, KEEP, all_with

SECONDS_EACH = 2.0
"""Longest time for one choice; the best one found by then is taken."""
ALIKE = 0.8
"""Largest share of units in which a choice may be equal to an earlier one."""
SOLVER_TOLERANCE = 2e-6
"""HiGHS takes a sum for feasible that is above its bound by 1e-6."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One option for each unit."""

    options: tuple[str, ...]
    origin: str
    """How it was found: `exact`, `greedy`, or the name of a rule."""


def exact_choice(
    scores: Sequence[Mapping[str, float]],
    costs: Sequence[Mapping[str, float]],
    limit: float,
    unlike: Sequence[Sequence[str]] = (),
    alike: float = ALIKE,
) -> tuple[str, ...] | None:
    """The options with the least sum of scores whose costs add up to at most `limit`; None where there are none.

    Args:
        scores: for each unit, what each of its options loses; those without a finite cost are left out.
        costs: for each unit, the cost of each option, in any unit.
        limit: in that unit.
        unlike: choices from which the answer differs in more than a share of `1 - alike` of the units.
        alike: see `unlike`.
    """
    offered = [(i, name) for i, named in enumerate(scores) for name in named if math.isfinite(costs[i][name])]
    units, price = len(scores), np.array([costs[i][name] for i, name in offered])
    if {i for i, _ in offered} != set(range(units)):
        return None
    one_each = csr_array((np.ones(len(offered)), ([i for i, _ in offered], range(len(offered)))))
    constraints = [LinearConstraint(one_each, 1, 1)]
    for other in unlike:
        same = np.array([[float(other[i] == name) for i, name in offered]])
        constraints.append(LinearConstraint(same, -np.inf, math.floor(alike * units)))
    # The solver allows itself a small violation: where it used that, it is asked again with so much less.
    for bound in (limit, solvable(limit)):
        found = milp(
            np.array([scores[i][name] for i, name in offered]),
            integrality=np.ones(len(offered)),
            bounds=Bounds(0, 1),
            constraints=[*constraints, LinearConstraint(price[None], -np.inf, bound)],
            options={"time_limit": SECONDS_EACH, "mip_rel_gap": 0.0},
        )
        if found.x is None:
            return None
        taken = {i: name for (i, name), share in zip(offered, found.x, strict=True) if share > 0.5}
        options = tuple(taken[i] for i in range(units))
        if total(costs, options) <= limit:
            return options
    return None


def solvable(limit: float) -> float:
    """The limit for a solver that allows itself to break one by its tolerance, so that its answer keeps `limit`."""
    return limit - SOLVER_TOLERANCE * max(1.0, limit)


def exact_choices(
    scores: Sequence[Mapping[str, float]], costs: Sequence[Mapping[str, float]], limit: float, count: int
) -> list[tuple[str, ...]]:
    """Up to `count` choices under the limit, the best by its sum first, each unlike those before it."""
    found: list[tuple[str, ...]] = []
    while len(found) < count:
        options = exact_choice(scores, costs, limit, unlike=found)
        if options is None:
            break
        found.append(options)
    return found


def greedy_choice(
    scores: Sequence[Mapping[str, float]], costs: Sequence[Mapping[str, float]], limit: float
) -> tuple[str, ...] | None:
    """From `KEEP` everywhere the change with the least loss for the time it saves, again and again, until within."""
    options = [KEEP] * len(scores)
    while (left := total(costs, options) - limit) > 0:
        changes = [
            (loss / min(saved, left), i, name)
            for i, named in enumerate(scores)
            for name in named
            if (saved := costs[i][options[i]] - costs[i][name]) > 0
            and math.isfinite(loss := max(0.0, scores[i][name] - scores[i][options[i]]))
        ]
        if not changes:
            return None
        _, i, name = min(changes)
        options[i] = name
    return tuple(options)


def uniform_choices(
    offered: Sequence[Mapping[str, float]], costs: Sequence[Mapping[str, float]], limit: float
) -> Iterator[Choice]:
    """Choices by plain rules, as people make networks smaller: the same option in as few units as the limit needs.

    For each option, units are changed in three orders: from the last one back, from the first one on, and the most
    expensive first; once alone and once where units that can be dropped were all dropped before.
    """
    names = sorted({name for named in offered for name in named} - {KEEP})
    starts = {"": all_with(KEEP, offered), f"{DROP}+": all_with(DROP, offered)}
    by_cost = sorted(range(len(offered)), key=lambda i: -costs[i][KEEP])
    orders = {"from the end": range(len(offered))[::-1], "from the beginning": range(len(offered)), "dearest": by_cost}
    for prefix, start in starts.items():
        for name in names:
            for order, places in orders.items():
                options = list(start)
                for i in places:
                    if total(costs, options) <= limit:
                        break
                    if name in offered[i] and costs[i][name] < costs[i][options[i]]:
                        options[i] = name
                if total(costs, options) <= limit:
                    yield Choice(tuple(options), f"{prefix}{name} {order}")


def random_choices(
    offered: Sequence[Mapping[str, float]],
    costs: Sequence[Mapping[str, float]],
    limit: float,
    rng: np.random.Generator,
    tries: int,
) -> Iterator[tuple[str, ...]]:
    """Choices that keep the limit, of `tries` whose options are drawn at random."""
    for _ in range(tries):
        options = tuple(str(rng.choice(list(named))) for named in offered)
        if total(costs, options) <= limit:
            yield options


def fastest_of(offered: Sequence[Mapping[str, float]], costs: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """The cheapest of each unit's options."""
    cheapest = (min((times[name], name) for name in named) for named, times in zip(offered, costs, strict=True))
    return tuple(name for _, name in cheapest)


def total(values: Sequence[Mapping[str, float]], options: Sequence[str]) -> float:
    """The sum of what the options have."""
    return sum(named[name] for named, name in zip(values, options, strict=True))


def least(costs: Sequence[Mapping[str, float]]) -> float:
    """The sum of the cheapest options."""
    return sum(min(named.values()) for named in costs)
