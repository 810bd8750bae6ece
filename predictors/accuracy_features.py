"""Structural features: what a list of choices says about a network before anything is run.

Every function maps integer choices (n, d) to float64 features (n, k), row by row: a candidate's features never depend
on the other candidates of the call. Several functions form a tuple of *views*: the first is a short summary from
which a predictor can learn with few labels, the others are longer descriptions for when there are many.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Choices = NDArray[np.integer]
FeatureView = Callable[[NDArray[Any]], Floats]


def generic_views(choices: Choices) -> tuple[FeatureView, ...]:
    """Ordinal ranks, and one-hot codes, of the values seen in `choices` (n, d); for spaces nothing is known about."""
    levels = [np.unique(column) for column in choices.T]

    def ordinal(candidates: Choices) -> Floats:
        return np.column_stack([np.searchsorted(seen, c) for seen, c in zip(levels, candidates.T, strict=True)]) * 1.0

    def one_hot(candidates: Choices) -> Floats:
        codes = [c[:, None] == seen for seen, c in zip(levels, candidates.T, strict=True)]
        return np.concatenate(codes, axis=1).astype(np.float64)

    return ordinal, one_hot
