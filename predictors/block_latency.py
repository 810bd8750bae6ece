"""Latency of staged networks from measurements on one device, runtime and precision.

Three steps, each correcting the one before. An additive model (a non-negative cost for each physical quantity of each
layer) carries what is common to all networks. Where the runtime's profiler told how long each block took inside its
network, those times teach the costs too, and one Gaussian process per kind of block corrects what a sum of quantities
cannot say (padding, tiling, caches). A last Gaussian process, on what the sum is made of, turns the sum of blocks into
the latency of the whole (fusion across blocks, the runtime's own overhead).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from predictors.base import NotFittedError, Prediction
from predictors.block_features import COLUMNS
from predictors.block_table import BlockFeatures, NetworkBlocks
from predictors.one_thread import one_thread
from predictors.smooth_gp import SmoothGp
from search_spaces.errors import UserError

Floats = NDArray[np.float64]

MIN_NETWORKS = 8
"""Fewer measurements cannot fix even the coarse costs."""
MIN_BLOCKS = 10
"""Fewer times of a kind of block are left to the additive costs."""
BLOCK_WEIGHT = 0.5
"""Weight of a block's relative error against a network's, in the additive costs."""
_CALLS, _MOVED, _WEIGHTS = (
    [i for i, c in enumerate(COLUMNS) if c.endswith("." + n)] for n in ("calls", "moved", "weights")
)


class BlockLatencyPredictor:
    """Predicts latency in milliseconds of the networks of any staged space on one deployment of one device.

    `folds` sets the cross-validation behind the standard deviation, `seed` its shuffling. With 0 folds there is none:
    seven times fewer models are fitted, for those who ask for `mean_ms` alone.
    """

    def __init__(self, *, folds: int = 6, seed: int = 0) -> None:
        self.folds = folds
        self.seed = seed

    def fit(self, networks: NetworkBlocks, latency_ms: Floats, block_ms: Floats | None = None) -> Self:
        """Learn from n measured networks with latencies (n,) in ms.

        `block_ms` (n, s): times of the networks' blocks as a profiler saw them, NaN where unknown. Only their relation
        to each other counts. Raises `ValueError` for fewer than `MIN_NETWORKS` networks, or latencies that are not
        positive.
        """
        latency_ms = np.array(latency_ms, dtype=np.float64)
        if len(latency_ms) < MIN_NETWORKS:
            raise ValueError(f"needs at least {MIN_NETWORKS} measured networks, got {len(latency_ms)}")
        if not (np.isfinite(latency_ms).all() and (latency_ms > 0).all()):
            raise ValueError("latencies must be positive and finite")
        with one_thread():
            self._model = _Composite().fit(networks, latency_ms, block_ms)
            self.errors_ = np.full(len(latency_ms), np.nan)
            """Logarithm of measured over predicted for each network by models that had not seen it, (n,)."""
            if self.folds:
                self.errors_ = np.log(latency_ms / self._out_of_fold(networks, latency_ms, block_ms))
        self.relative_std_ = relative_std(self.errors_)
        self.known_kinds_ = networks.occurring
        """Names of the families of blocks that were measured."""
        return self

    def block_ms(self, blocks: BlockFeatures) -> Floats:
        """Time of each of m blocks inside a network, (m,) ms; the argument that `predict` can be spared.

        Raises `UserError` for a block of a family that was never measured.
        """
        model = self._fitted()
        require_known(blocks.occurring, self.known_kinds_)
        return model.block_ms(blocks)

    def predict(self, networks: NetworkBlocks, block_ms: Floats | None = None) -> Prediction:
        """Mean and standard deviation (n,), ms. `block_ms` (m,): `self.block_ms(networks.blocks)`, where known.

        Raises `UserError` for networks with a block of a family that was never measured, `ValueError` for a predictor
        without folds, which has no standard deviations.
        """
        model = self._fitted()
        if not self.folds:
            raise ValueError("a predictor without folds has no standard deviations; ask for `mean_ms`")
        mean, far = model.predict(networks, self._known_block_ms(networks, block_ms))
        return Prediction(mean=mean, std=mean * self.relative_std_ * far)

    def mean_ms(self, networks: NetworkBlocks, block_ms: Floats | None = None) -> Floats:
        """The mean (n,) ms of `predict` alone, for a fraction of its price."""
        return self._fitted().mean(networks, self._known_block_ms(networks, block_ms))

    def _known_block_ms(self, networks: NetworkBlocks, block_ms: Floats | None) -> Floats:
        if block_ms is not None:
            return block_ms
        require_known(networks.occurring, self.known_kinds_)
        return self._fitted().block_ms(networks.blocks)

    def _fitted(self) -> "_Composite":
        if not hasattr(self, "_model"):
            raise NotFittedError("BlockLatencyPredictor is not fitted; call `fit` first")
        return self._model

    def _out_of_fold(self, networks: NetworkBlocks, latency_ms: Floats, block_ms: Floats | None) -> Floats:
        """Predictions for each network by models that never saw it, (n,) ms."""
        predicted = np.empty_like(latency_ms)
        order = np.random.RandomState(self.seed).permutation(len(latency_ms))
        for part in np.array_split(order, min(self.folds, len(latency_ms))):
            test = np.sort(part)
            train = np.setdiff1d(order, test)
            known = None if block_ms is None else block_ms[train]
            model = _Composite().fit(networks.select(train), latency_ms[train], known, like=self._model)
            unseen = networks.select(test)
            predicted[test] = model.mean(unseen, model.block_ms(unseen.blocks))
        return predicted


def relative_std(errors: Floats) -> float:
    """Relative standard deviation of predictions with these errors (n,), logarithms of measured over predicted.

    A robust and a plain estimate: the larger, so that a few bad networks are not wished away. NaN for errors that are.
    """
    return float(max(np.std(errors), np.quantile(np.abs(errors), 0.9) / 1.645, 1e-3))


def require_known(occurring: frozenset[str], known: frozenset[str]) -> None:
    """Raises `UserError` where a family of blocks is none of the measured ones: it would cost nothing."""
    unknown = sorted(occurring - known)
    if unknown:
        raise UserError(
            f"blocks of kind {', '.join(unknown)} were never measured, so nothing is known of their latency",
            "profile the device with networks that have them",
        )


@dataclass(frozen=True, slots=True)
class _TimedBlocks:
    """Times of m blocks, scaled so that the sums of networks match their latencies."""

    features: BlockFeatures
    ms: Floats
    position: NDArray[np.int32]
    """Position of the block in the networks' list."""

    @classmethod
    def of(cls, networks: NetworkBlocks, latency_ms: Floats, block_ms: Floats) -> "_TimedBlocks | None":
        known = np.isfinite(block_ms) & (block_ms > 0) & (networks.counts > 0)
        booked = np.where(known, block_ms * networks.counts, 0).sum(axis=1)
        if not (booked > 0).any():
            return None
        # What a profiler adds or overlooks is common to all networks of a deployment.
        factor = np.median(latency_ms[booked > 0] / booked[booked > 0])
        position = networks.positions[known]
        return cls(networks.blocks.select(position), block_ms[known] * factor, position)


class _Composite:
    """Additive costs, corrected per block and per network."""

    def fit(
        self,
        networks: NetworkBlocks,
        latency_ms: Floats,
        block_ms: Floats | None,
        like: "_Composite | None" = None,
    ) -> Self:
        """`like`: a model of nearly the same data, whose choices of smoothness are taken over."""
        columns = networks.sums(networks.blocks.columns)
        timed = None if block_ms is None else _TimedBlocks.of(networks, latency_ms, block_ms)
        self._fit_costs(columns, latency_ms, timed)
        self._corrections: dict[str, SmoothGp] = {}
        """Corrections by name of the family of blocks."""
        blocks = self._additive_ms(networks.blocks)
        if timed is not None:
            blocks = self._fit_blocks(networks.blocks, blocks, timed, like)
        sums = networks.sums(blocks) + self._constant
        features = self._features(networks, columns, sums)
        self._whole: SmoothGp = SmoothGp().fit(features, np.log(latency_ms / sums), like._whole if like else None)
        # Spread at the training points, to tell how much farther away a candidate is.
        self._near = float(np.median(self._whole.predict(features)[1]))
        return self

    def block_ms(self, blocks: BlockFeatures) -> Floats:
        found = self._additive_ms(blocks)
        for kind, correction in self._corrections.items():
            own = blocks.are(kind)
            if own.any():
                logs = correction.mean(_block_inputs(blocks.select(own), found[own]))
                found[own] *= np.exp(np.clip(logs, -1.0, 1.0))
        return found

    def predict(self, networks: NetworkBlocks, block_ms: Floats) -> tuple[Floats, Floats]:
        """Latency (n,) ms, and how much less sure than near the training networks (n,), from 1 to 3."""
        sums = networks.sums(block_ms) + self._constant
        logs, std = self._whole.predict(self._features(networks, networks.sums(networks.blocks.columns), sums))
        return sums * np.exp(np.clip(logs, -1.0, 1.0)), np.clip(std / (self._near + 1e-9), 1.0, 3.0)

    def mean(self, networks: NetworkBlocks, block_ms: Floats) -> Floats:
        """Latency (n,) ms."""
        sums = networks.sums(block_ms) + self._constant
        logs = self._whole.mean(self._features(networks, networks.sums(networks.blocks.columns), sums))
        return np.asarray(sums * np.exp(np.clip(logs, -1.0, 1.0)))

    def _fit_costs(self, columns: Floats, latency_ms: Floats, timed: _TimedBlocks | None) -> None:
        """A constant and a cost per quantity, by relative errors of networks and, where timed, of blocks."""
        scale = columns.mean(axis=0) + 1e-12
        design = np.concatenate([np.ones((len(columns), 1)), columns / scale], axis=1)
        # A little ridge keeps collinear costs apart.
        rows = [design / latency_ms[:, None], np.eye(design.shape[1]) * 0.01 / latency_ms.mean()]
        ones = [np.ones(len(design)), np.zeros(design.shape[1])]
        if timed is not None:
            quantities = timed.features.columns / scale / timed.ms[:, None]
            # The network's own constant has no part in a block.
            rows.append(BLOCK_WEIGHT * np.concatenate([np.zeros((len(quantities), 1)), quantities], axis=1))
            ones.append(np.full(len(quantities), BLOCK_WEIGHT))
        costs, _ = nnls(np.concatenate(rows), np.concatenate(ones), maxiter=10_000)
        self._constant, self._costs = float(costs[0]), costs[1:] / scale

    def _fit_blocks(
        self, blocks: BlockFeatures, additive_ms: Floats, timed: _TimedBlocks, like: "_Composite | None"
    ) -> Floats:
        """Learn the corrections; returns what each of the networks' own blocks (m,) is thought to take by a model that
        has not seen it, so that the last step learns from errors as large as it will meet."""
        found = additive_ms.copy()
        for kind in timed.features.kinds:
            own = timed.features.are(kind)
            if own.sum() < MIN_BLOCKS:
                continue
            expected = additive_ms[timed.position[own]]
            inputs = _block_inputs(timed.features.select(own), expected)
            known = like._corrections.get(kind) if like else None
            correction = SmoothGp().fit(inputs, np.log(timed.ms[own] / expected), known)
            self._corrections[kind] = correction
            every = blocks.are(kind)
            logs = correction.mean(_block_inputs(blocks.select(every), additive_ms[every]))
            found[every] = additive_ms[every] * np.exp(np.clip(logs, -1.0, 1.0))
            found[timed.position[own]] = expected * np.exp(np.clip(correction.left_out_, -1.0, 1.0))
        return found

    def _additive_ms(self, blocks: BlockFeatures) -> Floats:
        return np.asarray(blocks.columns @ self._costs + 1e-7)

    def _features(self, networks: NetworkBlocks, columns: Floats, sums: Floats) -> Floats:
        """Terms of the sum: its logarithm, shares of the additive parts, and the sizes that decide about caches and
        overheads: layers, calls, largest map, weights, resolution."""
        parts = columns * self._costs
        additive = parts.sum(axis=1) + self._constant
        shares = np.sqrt(parts[:, self._costs > 0] / additive[:, None])
        largest = networks.largest(networks.blocks.columns[:, _MOVED].sum(axis=1))
        pixels = networks.largest(np.exp2(networks.blocks.geometry[:, 4]))
        sizes = [networks.counts.sum(axis=1), columns[:, _CALLS].sum(axis=1), largest, columns[:, _WEIGHTS].sum(axis=1)]
        logs = np.log(np.stack([sums, sums / additive, *sizes, pixels], axis=1))
        return np.concatenate([logs, shares], axis=1)


def _block_inputs(blocks: BlockFeatures, additive_ms: Floats) -> Floats:
    return np.concatenate([blocks.geometry, np.log(additive_ms)[:, None]], axis=1)
