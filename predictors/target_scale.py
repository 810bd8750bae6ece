"""Monotone maps between measured values and normal scores."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NormalScores:
    """Piecewise-linear map from values to the normal scores of their ranks, and back.

    Ranks keep a handful of failed networks from ruling the fit. Beyond the seen range the map to scores is constant
    and the map back continues with the slope of the outer tenth, so that better than everything seen stays possible.
    """

    values: Floats  # increasing, (k,)
    scores: Floats  # increasing, (k,)

    @classmethod
    def fit(cls, values: Floats) -> Self:
        """Learn from finite values (n,); ties share their mean rank."""
        known, counts = np.unique(values, return_counts=True)
        ranks = np.cumsum(counts) - (counts - 1) / 2
        return cls(known, np.asarray(ndtri((ranks - 0.5) / len(values)), dtype=np.float64))

    def to_scores(self, values: Floats) -> Floats:
        return np.asarray(np.interp(values, self.values, self.scores), dtype=np.float64)

    def to_values(self, scores: Floats) -> Floats:
        if len(self.values) == 1:
            return np.full(len(scores), self.values[0])
        inside = np.interp(scores, self.scores, self.values)
        low, high = self._end_slopes()
        below = np.minimum(scores - self.scores[0], 0.0) * low
        above = np.maximum(scores - self.scores[-1], 0.0) * high
        return np.asarray(inside + below + above, dtype=np.float64)

    def _end_slopes(self) -> tuple[float, float]:
        reach = max(1, len(self.values) // 10)

        def slope(a: int, b: int) -> float:
            return float((self.values[b] - self.values[a]) / (self.scores[b] - self.scores[a]))

        return slope(0, reach), slope(-1 - reach, -1)
