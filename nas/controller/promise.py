"""The order of candidates by what a full training will make of them, from what a short one has.

Short trainings favour networks that learn fast, and these are the small ones: of 24 networks the accuracy after three
of eight epochs orders the final ones with a Kendall tau of .52, and together with the logarithm of the MACs, both in
standard deviations, with .69 (docs/accuracy.md). The full training of a search is longer still by its short ones.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.controller.trials import SHORT
from nas.controller.values import Evaluated, best_first
from search_spaces import SearchSpace
from search_spaces.signature import Size

CAPACITY_WEIGHT = 0.75
"""Weight of the logarithm of the MACs beside the value, both in standard deviations of the candidates."""


def promise(values: Sequence[float], macs: Sequence[float]) -> NDArray[np.float64]:
    """Values (n,) after short trainings and MACs (n,) -> what to order the networks by (n,), higher is better."""
    return _standard(values) + CAPACITY_WEIGHT * _standard(np.log(np.maximum(macs, 1.0)))


def most_promising(evaluated: Sequence[Evaluated], space: SearchSpace, size: Size) -> list[Evaluated]:
    """The candidates, the most promising first; by their values alone where these are no outcomes of short trainings.

    Args:
        evaluated: candidates of `space`.
        space: the searched one.
        size: of the networks' answers, for their MACs.
    """
    if not evaluated or any(e.estimator != SHORT for e in evaluated):
        return best_first(evaluated, lambda e: e.value)
    macs = space.costs(space.choices([e.arch for e in evaluated]), size)["macs"]
    found = dict(zip((e.trial for e in evaluated), promise([e.value for e in evaluated], macs.tolist()), strict=True))
    return best_first(evaluated, lambda e: float(found[e.trial]))


def _standard(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """In standard deviations from the mean; zeros where all are equal."""
    given = np.asarray(values, dtype=np.float64)
    spread = given.std()
    return np.zeros_like(given) if spread <= 1e-12 else (given - given.mean()) / spread
