"""Zero-cost scores of candidates on a fixed mini-batch of a search's data."""

import numpy as np
from numpy.typing import NDArray

from nas.evaluation.zero_cost import candidate_scores
from nas.samplers import ProxyScores
from nas.tasks import TaskData
from search_spaces import Architecture, SearchSpace

BATCH = 16


def proxy_scores(space: SearchSpace, data: TaskData, seed: int) -> ProxyScores:
    """A function that builds an architecture's network and scores it; the same batch and initialisation every time."""
    known: dict[str, NDArray[np.float64]] = {}

    def scores(arch: Architecture) -> NDArray[np.float64]:
        if arch.key not in known:
            known[arch.key] = candidate_scores(space, data, arch, BATCH, seed)
        return known[arch.key]

    return scores
