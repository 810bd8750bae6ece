"""Latency on a new device from few samples, with the tables of other devices as prior.

Other devices' tables are noisy too, and their noise does not transfer. So each source device is first turned into a
model of its own (robust ridge on the structure of the space), which answers for every network and not only for those
in its table. The new device is a non-negative mix of these models (a device is a bit like this one and a bit like that
one, never the opposite of one; this needs very few samples), times a Gaussian process over the structure of the space,
tightly shrunk around one, for what no other device shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.tabular.features import TableEncoding
from experiments.tabular.group_gp import GroupGP
from experiments.tabular.nonnegative import SMALLEST, NonNegativeLatency
from experiments.tabular.rows import Matrix, Vector, check_choices, check_training
from experiments.tabular.transfer_baselines import NonNegativeMix, PrincipalComponentRidge
from predictors.base import LatencyPredictor, NotFittedError, Prediction
from search_spaces.errors import UserError

_STRUCTURE_SHRINKAGE = 0.03
"""Prior variance of the structure beside the sources, as a part of its variance without them."""

_MAX_SOURCE_ROWS = 5000
_MAX_PAIR_COLUMNS = 40


class SourceModels:
    """Smooth models of source devices: relative latency by iteratively re-weighted ridge on encoded rows.

    Args:
        encoding: of the space.
        choices: (m, decisions) rows of the sources' tables.
        latency_ms: (m, devices) positive; NaN where a device has no value.
    """

    def __init__(self, encoding: TableEncoding, choices: NDArray[Any], latency_ms: ArrayLike) -> None:
        matrix = check_choices(choices)
        table = np.array(latency_ms, dtype=np.float64)
        if table.ndim != 2 or len(table) != len(matrix) or table.shape[1] == 0:
            raise UserError(f"{len(matrix)} rows of choices need source latencies of shape ({len(matrix)}, devices)")
        self.encoding = encoding
        rows = np.arange(len(matrix))
        if len(rows) > _MAX_SOURCE_ROWS:
            rows = np.random.default_rng(0).choice(len(rows), _MAX_SOURCE_ROWS, replace=False)
        encoded = encoding.encode(matrix[rows])
        self._center = encoded.mean(0)
        self._scale = np.where(encoded.std(0) > 1e-12, encoded.std(0), 1.0)
        design = self._design_of(encoded)
        self._weights = np.stack([_robust_ridge(design, column) for column in table[rows].T], axis=1)

    @property
    def n_sources(self) -> int:
        """Number of source devices."""
        return int(self._weights.shape[1])

    def relative_latency(self, encoded: Matrix) -> Matrix:
        """(n, columns) encoded rows to (n, devices) latencies relative to each device's mean."""
        return np.maximum(self._design_of(encoded) @ self._weights, SMALLEST)

    def _design_of(self, encoded: Matrix) -> Matrix:
        z = (encoded - self._center) / self._scale
        parts = [np.ones((len(z), 1)), z]
        if z.shape[1] <= _MAX_PAIR_COLUMNS:
            i, j = np.triu_indices(z.shape[1])
            parts.append(z[:, i] * z[:, j])
        return np.concatenate(parts, axis=1)


class TransferLatencyPredictor:
    """Non-negative mix of models of other devices, corrected by a Gaussian process over the structure of the space.

    Args:
        encoding: of the space that source and target rows share.
        source_choices: (m, decisions).
        source_latency_ms: (m, devices).
    """

    def __init__(self, encoding: TableEncoding, source_choices: NDArray[Any], source_latency_ms: ArrayLike) -> None:
        self.encoding = encoding
        self.sources = SourceModels(encoding, source_choices, source_latency_ms)
        self.gp_: GroupGP | None = None

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        """choices (n, decisions), latency_ms (n,) positive, of the new device."""
        matrix, y = check_training(choices, latency_ms)
        encoded = self.encoding.encode(matrix)
        sources = self.sources.relative_latency(encoded)
        self.unit_ = float(y.mean())
        self.mix_ = NonNegativeLatency().fit(sources, y / self.unit_)
        blocks = [replace(b, variance=b.variance * _STRUCTURE_SHRINKAGE) for b in self.encoding.blocks]
        # The mix has seen these rows; what it says of each without having seen it is as wrong as it will be of others.
        self.gp_ = GroupGP(blocks).fit(encoded, y / self.unit_ / self.mix_.left_out_)
        return self

    def predict(self, choices: NDArray[Any]) -> Prediction:
        """(n,) milliseconds on the new device. Raises NotFittedError before `fit`."""
        if self.gp_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        encoded = self.encoding.encode(check_choices(choices))
        mix = self.unit_ * self.mix_.predict(self.sources.relative_latency(encoded))
        ratio, ratio_std = self.gp_.predict(encoded)
        return Prediction(mix * ratio, mix * ratio_std)


TransferFactory = Callable[[TableEncoding, NDArray[Any], NDArray[np.float64]], LatencyPredictor]

TRANSFER_PREDICTORS: Mapping[str, TransferFactory] = {
    "transfer": TransferLatencyPredictor,
    "pc_ridge": PrincipalComponentRidge,
    "nonneg_mix": NonNegativeMix,
}
"""Name to factory(encoding, source choices (m, d), source latencies (m, devices)); the first is ours."""


def _robust_ridge(design: Matrix, latency_ms: Vector) -> Vector:
    """Weights (columns,) for latency / mean latency; relative errors count, and outliers count less."""
    measured = np.isfinite(latency_ms) & (latency_ms > 0)
    if not measured.any():
        raise UserError("a source device has no positive latency")
    x, y = design[measured], latency_ms[measured] / latency_ms[measured].mean()
    row_weight = 1 / np.maximum(y, 0.15)
    weights = np.zeros(x.shape[1])
    for _ in range(3):
        weighted = x * row_weight[:, None]
        gram = weighted.T @ weighted
        gram[np.diag_indices_from(gram)] += 1e-3 * float((row_weight**2).mean()) + 1e-9
        weights = np.linalg.solve(gram, weighted.T @ (y * row_weight))
        fitted = np.maximum(x @ weights, 0.15)
        error = y / fitted - 1
        spread = max(1.4826 * float(np.median(np.abs(error))), 1e-6)
        row_weight = np.sqrt(5 / (4 + (error / spread) ** 2)) / fitted
    return weights
