"""Latency of candidates on a target: one predictor per deployment, fitted on the target's profile."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.deployment import ALONE, CPU, PIPELINE, Deployment
from nas.errors import UserError
from nas.targets.fitting import kinds_of, training_data
from nas.targets.profile import ENOUGH_NETWORKS, DeviceProfile
from predictors.base import Prediction
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor
from predictors.block_table import NetworkBlocks, SpaceBlocks
from predictors.block_transfer import MIN_WITH_PRIOR, TransferredLatencyPredictor
from predictors.call_pattern import MIN_NETWORKS as MIN_SPACED
from predictors.call_pattern import CallPatternModel
from search_spaces import Choices, SearchSpace
from search_spaces.signature import Size, TensorSpec

ENOUGH_FOR_PRIOR = 30
MOST_SOURCES = 4
Z_90 = 1.645
"""Half width of a central 90 % interval in standard deviations."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Correction of a profile by measurements made at another time: latency now is `scale` times latency then."""

    factor: float = 1.0
    """The reference network's latency now over that of then."""
    exponent: float = 1.0
    """How strongly the deployment follows the reference network, see `predictors.drift`."""
    relative_std: float = 0.0
    """Relative disagreement of the present measurements: added to the predictor's own uncertainty."""

    @property
    def scale(self) -> float:
        """Latency of the deployment's networks now over that of then."""
        return float(self.factor**self.exponent)


@dataclass(frozen=True, slots=True)
class Checked:
    """How a few networks, measured now, took against their predictions; it holds for networks like them."""

    scale: float
    """Measured over predicted latency."""
    relative_std: float
    """Standard deviation of single networks around that, relative to it."""
    limit_ms: float
    """The limit on the median call near which the networks were."""


@dataclass(frozen=True, slots=True)
class _KnownSpace:
    """Quantities computed once for all candidates of a space whose blocks can be enumerated."""

    space: SpaceBlocks
    block_ms: Mapping[Deployment, NDArray[np.float64]]
    """Milliseconds of each of its blocks."""


class LatencyModel:
    """Predicts every deployment's latency for arrays of candidates of any space whose blocks were measured."""

    def __init__(
        self,
        profile: DeviceProfile,
        deployments: Sequence[Deployment] | None = None,
        corrections: Mapping[Deployment, Correction] | None = None,
        prior: Sequence[DeviceProfile] = (),
    ) -> None:
        """Fit on `profile`; `deployments` limits which of its tables are used, and says how they are called.

        `corrections` are of deployments that are called without a pause; in other patterns they are as right. Profiles
        of other devices in `prior` help where fewer than `ENOUGH_NETWORKS` networks were measured; those that lack a
        kind of block which the profile's networks have are left out.

        Raises `UserError` where the profile has too few measurements of a deployment.
        """
        self.profile = profile
        self.deployments = (
            tuple(deployments) if deployments is not None else tuple(t.deployment for t in profile.tables)
        )
        self.corrections = dict(corrections or {})
        self.processing_ms: Mapping[TensorSpec, float] = {}
        """Milliseconds of pre- and post-processing for one example, by the network's input; empty: predictions are of
        the network alone."""
        self.checks: Mapping[Deployment, Checked] = {}
        """Findings by deployment, as it is asked for, that predictions of networks follow."""
        self._prior = tuple(prior)
        self._spaces: dict[tuple[str, Size], _KnownSpace] = {}
        self._predictors: dict[Deployment, BlockLatencyPredictor | TransferredLatencyPredictor] = {}
        self._patterns = {d: pattern_model(profile, d) for d in self.deployments if d.interval_ms}
        sources = PriorPredictors([p for p in prior if kinds_of(profile) <= kinds_of(p)])
        for deployment in dict.fromkeys(d.continuous for d in self.deployments):
            table = profile.table(deployment)
            latency = table.steady_latency_ms() if table else np.array([])
            measured = np.flatnonzero(np.isfinite(latency))
            nearest = sources.nearest(deployment) if len(measured) < ENOUGH_NETWORKS else []
            if len(measured) < (MIN_WITH_PRIOR if nearest else MIN_NETWORKS):
                raise UserError(
                    f"profile {profile.name!r} has {len(measured)} measured networks for {deployment.name}, too few",
                    f"`nas profile {profile.name}` goes on measuring; or leave it out with --runtime or --precision",
                )
            predictor = TransferredLatencyPredictor(nearest) if nearest else BlockLatencyPredictor()
            self._predictors[deployment] = predictor.fit(*training_data(profile, deployment, measured))

    def called(self, profile: DeviceProfile, interval_ms: float) -> "LatencyModel":
        """The same model of calls every `interval_ms`; `profile` is its own, with timings of such calls."""
        deployments = [d.called(interval_ms) for d in self.deployments]
        return LatencyModel(profile, deployments, self.corrections, self._prior)

    def limited_to(self, deployments: Sequence[Deployment]) -> "LatencyModel":
        """The same model of some of its deployments."""
        found = copy(self)
        found.deployments = tuple(deployments)
        return found

    def checked(self, checks: Mapping[Deployment, Checked]) -> "LatencyModel":
        """The same model, corrected by what networks like those in question took; by deployment of networks alone."""
        found = copy(self)
        found.checks = dict(checks)
        return found

    def of_networks(self) -> "LatencyModel":
        """The same model of networks alone: undoes `around`."""
        found = copy(self)
        found.processing_ms = {}
        found.deployments = tuple(d.covering(ALONE) for d in self.deployments)
        found._patterns = {d.covering(ALONE): pattern for d, pattern in self._patterns.items()}
        return found

    def around(self, processing_ms: Mapping[TensorSpec, float]) -> "LatencyModel":
        """The same model of the whole way from an example to an answer: `processing_ms` is added to each network's."""
        found = copy(self)
        found.processing_ms = dict(processing_ms)
        found.deployments = tuple(d.covering(PIPELINE) for d in self.deployments)
        found._patterns = {d.covering(PIPELINE): pattern for d, pattern in self._patterns.items()}
        return found

    def predict(self, space: SearchSpace, choices: Choices, size: Size) -> dict[Deployment, Prediction]:
        """For each deployment, mean and standard deviation in ms of the n candidates in `choices` (n, decisions).

        Raises `UserError` for a family of blocks that was never measured.
        """
        block_ms: Mapping[Deployment, NDArray[np.float64]] = {}
        if space.slot_decisions is None:
            networks = NetworkBlocks.of(space.slots(choices, size))
            self._require_known(networks.occurring, space)
        else:
            known = self._known(space, size)
            networks, block_ms = known.space.networks(choices), known.block_ms
        found = {}
        for deployment in self.deployments:
            continuous = deployment.continuous
            correction = self.corrections.get(continuous, Correction())
            prediction = self._predictors[continuous].predict(networks, block_ms.get(continuous))
            mean = prediction.mean * correction.scale
            std = np.hypot(prediction.std * correction.scale, mean * correction.exponent * correction.relative_std)
            found[deployment] = Prediction(mean=mean, std=std)
            if deployment in self._patterns:
                found[deployment] = self._patterns[deployment].predict(found[deployment])
            check = self.checks.get(deployment.covering(ALONE))
            if check is not None:
                mean = check.scale * found[deployment].mean
                found[deployment] = Prediction(mean=mean, std=check.relative_std * mean)
        return self._with_processing(found, space, choices) if self.processing_ms else found

    def slot_ms(self, space: SearchSpace, choices: Choices, size: Size) -> dict[Deployment, NDArray[np.float64]]:
        """For each deployment, what the blocks of each slot (all of them) of n candidates take inside, (n, slots) ms.

        In proportion to each other: the latency of the whole is not their sum, see `predict`. Slots of spaces that do
        not list them are those of each network. Raises `UserError` as `predict`.
        """
        if space.slot_decisions is None:
            networks, known_ms = NetworkBlocks.of(space.slots(choices, size)), {}
            self._require_known(networks.occurring, space)
        else:
            known = self._known(space, size)
            networks, known_ms = known.space.networks(choices), dict(known.block_ms)
        found = {}
        for deployment in self.deployments:
            block_ms = known_ms.get(deployment.continuous)
            if block_ms is None:
                block_ms = self._predictors[deployment.continuous].block_ms(networks.blocks)
            each_ms = block_ms if block_ms.ndim == 1 else block_ms.mean(axis=1)  # one column for each source
            found[deployment] = each_ms[networks.positions] * networks.counts
        return found

    def around_ms(self, space: SearchSpace, choices: Choices, batch: int) -> float:
        """Milliseconds of a call that predictions of the first of `choices` have besides its network."""
        if not self.processing_ms:
            return 0.0
        (input, *_), _ = space.inputs_of(choices[:1])
        return batch * self._processing_of(input)

    def _processing_of(self, input: TensorSpec) -> float:
        """By the input that was timed; for one that was not, by the nearest in size."""
        nearest = min(self.processing_ms, key=lambda known: abs(math.prod(known.shape) - math.prod(input.shape)))
        return self.processing_ms[nearest]

    def _with_processing(
        self, found: Mapping[Deployment, Prediction], space: SearchSpace, choices: Choices
    ) -> dict[Deployment, Prediction]:
        inputs, places = space.inputs_of(choices)
        extra_ms = np.array([self._processing_of(input) for input in inputs])[places]
        return {d: Prediction(mean=p.mean + d.batch * extra_ms, std=p.std) for d, p in found.items()}

    def _known(self, space: SearchSpace, size: Size) -> "_KnownSpace":
        """Restrictions of a space share its blocks."""
        key = (space.name, size)
        if key not in self._spaces:
            blocks = SpaceBlocks(space, size)
            self._require_known(blocks.blocks.occurring, space)
            said: dict[BlockLatencyPredictor, NDArray[np.float64]] = {}  # deployments share sources
            block_ms = {
                d: p.block_ms(blocks.blocks, said) if isinstance(p, TransferredLatencyPredictor)
                else p.block_ms(blocks.blocks)
                for d, p in self._predictors.items()
            }  # fmt: skip
            self._spaces[key] = _KnownSpace(blocks, block_ms)
        return self._spaces[key]

    def _require_known(self, kinds: frozenset[str], space: SearchSpace) -> None:
        for deployment, predictor in self._predictors.items():
            unknown = sorted(kinds - predictor.known_kinds_)
            if unknown:
                raise UserError(
                    f"profile {self.profile.name!r} never measured blocks of kind {', '.join(unknown)} in "
                    f"{deployment.name}",
                    f"`nas profile NAME --space {space.name}` adds them to a device's profile NAME; "
                    "search with --target NAME then",
                )

    def fastest(self, space: SearchSpace, choices: Choices, size: Size) -> tuple[NDArray[np.int64], Prediction]:
        """Each candidate's fastest deployment (position in `deployments`, (n,)) and its prediction."""
        predictions = self.predict(space, choices, size)
        means = np.stack([predictions[d].mean for d in self.deployments])
        stds = np.stack([predictions[d].std for d in self.deployments])
        best = means.argmin(axis=0)
        columns = np.arange(means.shape[1])
        return best, Prediction(mean=means[best, columns], std=stds[best, columns])


def pattern_model(profile: DeviceProfile, deployment: Deployment) -> CallPatternModel:
    """The extra time of calls with pauses, from the networks that the profile has in both patterns.

    Raises `UserError` where they are too few.
    """
    table, base = profile.table(deployment), profile.table(deployment.continuous)
    spaced = table.column("latency_ms") if table else np.full(len(profile.networks), np.nan)
    continuous = base.column("latency_ms") if base else np.full(len(profile.networks), np.nan)
    both = np.flatnonzero(np.isfinite(spaced) & np.isfinite(continuous)).tolist()
    if len(both) < MIN_SPACED:
        raise UserError(
            f"profile {profile.name!r} has {len(both)} networks for {deployment.name} at {deployment.calls}, too few",
            f"`nas profile {profile.name} --calls {deployment.calls}` on that device measures them",
        )
    return CallPatternModel().fit(continuous[both], spaced[both])


class PriorPredictors:
    """Predictors of the well-measured deployments of other devices, each fitted once however often it is asked for."""

    def __init__(self, prior: Sequence[DeviceProfile]) -> None:
        self._tables = [(p, t) for p in prior for t in p.tables if t.measured >= ENOUGH_FOR_PRIOR]
        self._fitted: dict[int, BlockLatencyPredictor] = {}

    def nearest(self, deployment: Deployment) -> list[BlockLatencyPredictor]:
        """Predictors, without standard deviations, of at most `MOST_SOURCES` deployments most like `deployment`."""

        def unlike(at: int) -> tuple[bool, bool, int]:
            other = self._tables[at][1].deployment
            return (
                other.precision != deployment.precision,
                other.runtime != deployment.runtime,
                abs(other.threads - deployment.threads),
            )

        # What is slow on a processor says little about a GPU, and the other way round.
        same_kind = [
            at for at, (_, t) in enumerate(self._tables) if (t.deployment.device == CPU) == (deployment.device == CPU)
        ]
        return [self._predictor(at) for at in sorted(same_kind, key=unlike)[:MOST_SOURCES]]

    def _predictor(self, at: int) -> BlockLatencyPredictor:
        if at not in self._fitted:
            profile, table = self._tables[at]
            measured = np.flatnonzero(np.isfinite(table.steady_latency_ms()))
            data = training_data(profile, table.deployment, measured)
            self._fitted[at] = BlockLatencyPredictor(folds=0).fit(*data)
        return self._fitted[at]
