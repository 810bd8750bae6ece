"""Latency of table rows on one device from few measurements, and the dict of all such predictors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from numpy.typing import ArrayLike, NDArray

from predictors.base import LatencyPredictor, NotFittedError, Prediction, check_choices, check_training
from predictors.baselines import ConstantLatency, OneHotGP, OneHotRidge
from predictors.features import TableEncoding
from predictors.group_gp import GroupGP


class TableLatencyPredictor:
    """Additive Gaussian process over the feature groups of a table's layout (see `predictors.group_gp`).

    Args:
        encoding: from `predictors.table_spaces.table_encoding`; it knows the legal values of each decision.
        noise: prior of the relative measurement noise.
        nu: degrees of freedom of the noise; few make outliers harmless.
    """

    def __init__(self, encoding: TableEncoding, *, noise: float = 0.05, nu: float = 3.0) -> None:
        self.encoding = encoding
        self.noise = noise
        self.nu = nu
        self.gp_: GroupGP | None = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive.

        Raises:
            UserError: bad latencies, or a value that the space does not have.
        """
        matrix, y = check_training(choices, latency_ms)
        gp = GroupGP(self.encoding.blocks, noise=self.noise, nu=self.nu)
        self.gp_ = gp.fit(self.encoding.encode(matrix), y)
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds for the rows of choices (n, decisions).

        Raises:
            NotFittedError: before `fit`.
            UserError: a value that the space does not have.
        """
        if self.gp_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        return Prediction(*self.gp_.predict(self.encoding.encode(check_choices(choices))))


LATENCY_PREDICTORS: Mapping[str, Callable[[TableEncoding], LatencyPredictor]] = {
    "additive": TableLatencyPredictor,
    "constant": ConstantLatency,
    "ridge": OneHotRidge,
    "gp": OneHotGP,
}
"""Name to factory; the first is the product's, the others are the baselines it is printed beside."""
