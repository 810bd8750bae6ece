"""Zero-cost scores of candidates on a fixed mini-batch of a search's data."""

import numpy as np
import torch
from numpy.typing import NDArray

from nas.controller.samplers import ProxyScores
from nas.data import ImageData
from nas.evaluation.zero_cost import zero_cost_scores
from search_spaces import Architecture, StagedSpace

BATCH = 16


def proxy_scores(space: StagedSpace, data: ImageData, seed: int) -> ProxyScores:
    """A function that builds an architecture's network and scores it; the same batch and initialisation every time."""
    known: dict[str, NDArray[np.float64]] = {}

    def scores(arch: Architecture) -> NDArray[np.float64]:
        if arch.key not in known:
            split = data.at("train", space.resolution(arch)).some(BATCH, seed)
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                network = space.build(arch, data.num_classes)
            images = torch.from_numpy(data.preprocess.array(split.images))
            known[arch.key] = zero_cost_scores(network, images, torch.from_numpy(split.labels))
        return known[arch.key]

    return scores
