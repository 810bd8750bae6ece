"""What options lose or take together: figures of single options, corrected by those of networks made of many."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nas.baseline.selection import total

PRIOR, FLOOR = 0.5, 0.05
"""Standard deviation of an option's share in a network's loss: as a part of what it loses alone, and at least as a part
of the largest such loss. So for times."""
NOISE = 0.1
"""Standard deviation of a network's loss that no sum explains, as a part of the mean. So for times."""


def refitted(
    losses: Sequence[Mapping[str, float]], known: Sequence[tuple[Sequence[str], float]]
) -> list[dict[str, float]]:
    """For each unit what each option adds to the loss of a network of options, by Bayesian linear regression.

    The prior of each option is what it loses alone, times one factor for all, which is fitted first: losses of many
    changes together are not their sum. Options that no network has keep their prior; none adds less than nothing.

    Args:
        losses: for each unit what each option loses alone; infinite ones stay so.
        known: networks of options, one for each unit, and what they lose.
    """
    columns = [(i, name) for i, named in enumerate(losses) for name, loss in named.items() if math.isfinite(loss)]
    alone = np.array([losses[i][name] for i, name in columns])
    known = [(options, loss) for options, loss in known if math.isfinite(loss + total(losses, options))]
    refit: list[dict[str, float]] = [dict(named) for named in losses]
    if not known or not alone.any():
        return refit
    taken = np.array([[float(options[i] == name) for i, name in columns] for options, _ in known])
    seen = np.array([loss for _, loss in known])
    sums = taken @ alone
    factor = float(sums @ seen / (sums @ sums)) if sums.any() else 1.0
    mean = factor * alone
    std = PRIOR * mean + FLOOR * mean.max() * (alone > 0)
    spread = taken * std
    noise = max(NOISE * seen.mean(), 1e-9 * alone.max())
    # In units of the priors' deviations: a ridge regression of what the prior does not explain.
    change = np.linalg.solve(spread.T @ spread + noise**2 * np.eye(len(columns)), spread.T @ (seen - taken @ mean))
    found = np.maximum(mean + std * change, 0.0)
    for (i, name), value in zip(columns, found, strict=True):
        refit[i][name] = float(value)
    return refit
