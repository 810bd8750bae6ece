"""Latency of table rows on one device from few measurements, and the dict of all such predictors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.tabular.baselines import ConstantLatency, OneHotGP, OneHotRidge
from experiments.tabular.features import TableEncoding
from experiments.tabular.group_gp import GroupGP
from experiments.tabular.nonnegative import NonNegativeLatency
from experiments.tabular.rows import Vector, check_choices, check_training
from predictors.base import LatencyPredictor, NotFittedError, Prediction


class TableLatencyPredictor:
    """Additive Gaussian process over the feature groups of a table's layout (see `experiments.tabular.group_gp`).

    Where the layout tells amounts of work, it is averaged with a non-negative mix of them by how well each predicts the
    training rows that it has not seen.

    Args:
        encoding: from `experiments.tabular.layouts.table_encoding`; it knows the legal values of each decision.
        noise: prior of the relative measurement noise.
        nu: degrees of freedom of the noise; few make outliers harmless.
    """

    def __init__(self, encoding: TableEncoding, *, noise: float = 0.05, nu: float = 3.0) -> None:
        self.encoding = encoding
        self.noise = noise
        self.nu = nu
        self.gp_: GroupGP | None = None
        self.mix_: NonNegativeLatency | None = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive.

        Raises:
            UserError: bad latencies, or a value that the space does not have.
        """
        matrix, y = check_training(choices, latency_ms)
        gp = GroupGP(self.encoding.blocks, noise=self.noise, nu=self.nu).fit(self.encoding.encode(matrix), y)
        costs = self.encoding.costs(matrix)
        self.gp_, self.mix_, self.mix_share_, self.unit_ = gp, None, 0.0, float(y.mean())
        if costs is not None:
            self.mix_ = NonNegativeLatency().fit(costs, y / self.unit_)
            errors = [_mean_error(left_out, y) for left_out in (gp.left_out_, self.unit_ * self.mix_.left_out_)]
            self.mix_share_ = errors[0] / max(sum(errors), 1e-12)
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds for the rows of choices (n, decisions).

        Raises:
            NotFittedError: before `fit`.
            UserError: a value that the space does not have.
        """
        if self.gp_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        matrix = check_choices(choices)
        mean, std = self.gp_.predict(self.encoding.encode(matrix))
        costs = self.encoding.costs(matrix)
        if costs is None or self.mix_ is None:
            return Prediction(mean, std)
        both = mean * (self.unit_ * self.mix_.predict(costs) / mean) ** self.mix_share_
        return Prediction(both, std * both / mean)


def _mean_error(predicted: Vector, measured: Vector) -> float:
    """Mean square of the relative error's logarithm, clipped so that one outlier does not decide."""
    return float(np.mean(np.clip(np.log(predicted / measured), -0.3, 0.3) ** 2))


LATENCY_PREDICTORS: Mapping[str, Callable[[TableEncoding], LatencyPredictor]] = {
    "additive": TableLatencyPredictor,
    "constant": ConstantLatency,
    "ridge": OneHotRidge,
    "gp": OneHotGP,
}
"""Name to factory; the first is ours, the others are the baselines it is printed beside."""
