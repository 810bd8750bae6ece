"""The largest rate of requests that still keeps a limit: bisection, apart from how a rate is tried."""

from collections.abc import Callable

TRIALS = 8
PRECISION = 0.02
"""The search ends when the bounds are nearer to each other than this part of the upper one."""
LEAST = 0.05
"""Of the upper bound: a server that is late at so light a load is late at any."""
FIRST = 0.75
"""Of the upper bound, that is tried first: most servers keep a sensible limit up to about there."""


def largest_rate(
    keeps: Callable[[float], bool], above: float, trials: int = TRIALS, precision: float = PRECISION
) -> float | None:
    """The largest rate for which `keeps` was true; None where it never was.

    Args:
        keeps: tries a rate.
        above: a rate that is not kept, per second; what a closed loop reached, and a little more.
        trials: most calls of `keeps`.
        precision: relative distance of the bounds at which the search ends early.
    """
    if above <= 0:  # the closed loop got no right answer
        return None
    low, high = 0.0, above
    rate = FIRST * above
    for _ in range(trials):
        if rate < LEAST * above:
            break
        if keeps(rate):
            low = rate
        else:
            high = rate
        if high - low < precision * high:
            break
        rate = (low + high) / 2
    return low or None
