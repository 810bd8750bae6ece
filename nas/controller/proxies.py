"""Zero-cost scores of candidates on a fixed mini-batch of a search's data."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nas.evaluation.zero_cost import candidate_scores
from nas.samplers import ProxyScores
from nas.tasks import TaskData
from search_spaces import Architecture, SearchSpace

BATCH = 16
SCORING_SHARE = 0.4
"""Largest share of the time for estimates that goes into zero-cost scores: on a busy machine they take many times as
long, and trainings tell more."""


def proxy_scores(space: SearchSpace, data: TaskData, seed: int) -> ProxyScores:
    """A function that builds an architecture's network and scores it; the same batch and initialisation every time."""
    known: dict[str, NDArray[np.float64]] = {}

    def scores(arch: Architecture) -> NDArray[np.float64]:
        if arch.key not in known:
            known[arch.key] = candidate_scores(space, data, arch, BATCH, seed)
        return known[arch.key]

    return scores


def within(scores: ProxyScores, seconds: float, clock: Callable[[], float] = time.monotonic) -> ProxyScores:
    """`scores` until they have taken so many seconds altogether; then NaN for each network that was not scored before.

    `clock`: in seconds, so that tests need not wait.
    """
    known: dict[str, NDArray[np.float64]] = {}
    spent_s = 0.0

    def limited(arch: Architecture) -> NDArray[np.float64]:
        nonlocal spent_s
        if arch.key in known:
            return known[arch.key]
        if known and spent_s >= seconds:
            return np.full_like(next(iter(known.values())), np.nan)
        began = clock()
        known[arch.key] = scores(arch)
        spent_s += clock() - began
        return known[arch.key]

    return limited
