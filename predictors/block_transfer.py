"""Latency of staged networks on a new device from 5 to 50 networks measured there, with known devices as prior.

What is known of other devices (or of other runtimes and precisions on them) is a list of fitted predictors. The new
device is a non-negative mix of what they say: it is a bit like this one and a bit like that one, never the opposite of
one. From `MIN_NETWORKS` measured networks on, a predictor of its own is fitted as well, and the two are averaged by how
well each predicts networks it has not seen; with more networks the prior fades by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from predictors.base import NotFittedError, Prediction
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor, relative_std
from predictors.block_table import BlockFeatures, NetworkBlocks

Floats = NDArray[np.float64]

MIN_WITH_PRIOR = 3
"""Fewer networks cannot tell the sources apart."""
_FOLDS = 10
_SMALLEST = 0.05
"""Smallest mix, as a share of the mean latency: no mix says less."""


class TransferredLatencyPredictor:
    """Predicts latency in milliseconds on a new device.

    `sources`: fitted predictors of other deployments, at least one.
    """

    def __init__(self, sources: Sequence[BlockLatencyPredictor]) -> None:
        if not sources:
            raise ValueError("a transfer needs at least one source")
        self.sources = tuple(sources)

    def fit(self, networks: NetworkBlocks, latency_ms: Floats, block_ms: Floats | None = None) -> Self:
        """Learn from n measured networks with latencies (n,) in ms, and times of their blocks (n, s) where known.

        Raises `ValueError` for fewer than `MIN_WITH_PRIOR` networks, or latencies that are not positive.
        """
        latency_ms = np.array(latency_ms, dtype=np.float64)
        if len(latency_ms) < MIN_WITH_PRIOR:
            raise ValueError(f"needs at least {MIN_WITH_PRIOR} measured networks, got {len(latency_ms)}")
        if not (np.isfinite(latency_ms).all() and (latency_ms > 0).all()):
            raise ValueError("latencies must be positive and finite")
        said = self._said(networks, [None] * len(self.sources))
        self._mix = mix_weights(said, latency_ms)
        errors = np.log(latency_ms / _left_out(said, latency_ms))
        self._own, self.own_share_ = None, 0.0
        if len(latency_ms) >= MIN_NETWORKS:
            self._own = BlockLatencyPredictor().fit(networks, latency_ms, block_ms)
            own_errors = self._own.errors_
            mixed, own = float(np.mean(errors**2)), float(np.mean(own_errors**2))
            self.own_share_ = mixed / (mixed + own)
            errors = (1 - self.own_share_) * errors + self.own_share_ * own_errors
        self.relative_std_ = relative_std(errors)
        self.known_kinds_ = frozenset.intersection(*(source.known_kinds_ for source in self.sources))
        return self

    def block_ms(self, blocks: BlockFeatures, known: dict[BlockLatencyPredictor, Floats] | None = None) -> Floats:
        """Time of each of m blocks by each source and the own predictor, (m, sources + 1 or + 0) ms; the argument that
        `predict` can be spared.

        `known`: what predictors said of these very blocks before; those that are asked now are added to it.
        """
        said = {} if known is None else known
        for predictor in self._predictors():
            if predictor not in said:
                said[predictor] = predictor.block_ms(blocks)
        return np.stack([said[predictor] for predictor in self._predictors()], axis=1)

    def predict(self, networks: NetworkBlocks, block_ms: Floats | None = None) -> Prediction:
        """Mean and standard deviation (n,), ms. `block_ms`: `self.block_ms(networks.blocks)`, where known."""
        known = (self.block_ms(networks.blocks) if block_ms is None else block_ms).T
        mean = mixed_ms(self._said(networks, known[: len(self.sources)]), self._mix)
        if self._own is not None:
            own = self._own.mean_ms(networks, known[-1])
            mean = np.exp((1 - self.own_share_) * np.log(mean) + self.own_share_ * np.log(own))
        return Prediction(mean=mean, std=mean * self.relative_std_)

    def _predictors(self) -> tuple[BlockLatencyPredictor, ...]:
        if not hasattr(self, "_mix"):
            raise NotFittedError("TransferredLatencyPredictor is not fitted; call `fit` first")
        return self.sources if self._own is None else (*self.sources, self._own)

    def _said(self, networks: NetworkBlocks, block_ms: Iterable[Floats | None]) -> Floats:
        """Predictions of the sources for n networks, (n, sources) ms, given each source's times of the blocks."""
        said = [s.mean_ms(networks, known) for s, known in zip(self.sources, block_ms, strict=True)]
        return np.stack(said, axis=1)


def mix_weights(said: Floats, latency_ms: Floats) -> Floats:
    """Non-negative weights (sources + 1,), the last a constant in ms, by re-weighted least squares on relative errors,
    so that a few networks that are odd on the new device do not decide."""
    design = np.column_stack([said, np.full(len(said), latency_ms.mean())])
    row_weight = 1 / latency_ms
    weights = np.zeros(design.shape[1])
    for _ in range(6):
        weights, _ = nnls(design * row_weight[:, None], latency_ms * row_weight)
        fitted = np.maximum(design @ weights, _SMALLEST * latency_ms.mean())
        error = latency_ms / fitted - 1
        spread = max(1.4826 * float(np.median(np.abs(error))), 0.01)
        row_weight = np.sqrt(4 / (3 + (error / spread) ** 2)) / fitted
    weights[-1] *= latency_ms.mean()
    return weights


def mixed_ms(said: Floats, weights: Floats) -> Floats:
    """The mix of what the sources say (n, sources) -> (n,) ms."""
    mixed = said @ weights[:-1] + weights[-1]
    return np.asarray(np.maximum(mixed, _SMALLEST * said.min(axis=1)))


def _left_out(said: Floats, latency_ms: Floats) -> Floats:
    """Predictions for each network by mixes that never saw it, (n,) ms."""
    folds = np.arange(len(said)) % min(len(said), _FOLDS)
    found = np.empty(len(said))
    for fold in range(folds.max() + 1):
        held = folds == fold
        found[held] = mixed_ms(said[held], mix_weights(said[~held], latency_ms[~held]))
    return found
