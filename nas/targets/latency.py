"""Latency of candidates on a target: one predictor per deployment, fitted on the target's profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment
from nas.errors import UserError
from nas.targets.profile import DeviceProfile, HeldOutError
from predictors.base import Prediction
from predictors.block_features import network_columns
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor
from search_spaces import Architecture, Choices, StagedSpace, load_search_space
from search_spaces.staged import concatenate_slots

Z_90 = 1.645
"""Half width of a central 90 % interval in standard deviations."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What probe networks on this host say of a profile made elsewhere: latency here = factor x latency there."""

    factor: float = 1.0
    relative_std: float = 0.0
    """Spread of the probes' ratios: added to the predictor's own uncertainty."""
    probes: int = 0


class LatencyModel:
    """Predicts every deployment's latency for arrays of candidates of any staged space."""

    def __init__(
        self,
        profile: DeviceProfile,
        deployments: Sequence[Deployment] | None = None,
        corrections: Mapping[Deployment, Correction] | None = None,
    ) -> None:
        """Fit on `profile`; `deployments` limits which of its tables are used.

        Raises `UserError` where the profile has too few measurements of a deployment.
        """
        self.profile = profile
        self.deployments = (
            tuple(deployments) if deployments is not None else tuple(t.deployment for t in profile.tables)
        )
        self.corrections = dict(corrections or {})
        self._predictors: dict[Deployment, BlockLatencyPredictor] = {}
        for deployment in self.deployments:
            table = profile.table(deployment)
            latency = np.array(table.latency_ms if table else (), dtype=np.float64)
            measured = np.flatnonzero(np.isfinite(latency))
            if len(measured) < MIN_NETWORKS:
                raise UserError(
                    f"profile {profile.name!r} has {len(measured)} measured networks for {deployment.name}, too few",
                    f"`nas profile {profile.name}` goes on measuring",
                )
            columns = columns_of([profile.networks[i] for i in measured], profile.num_classes)
            self._predictors[deployment] = BlockLatencyPredictor().fit(columns, latency[measured])

    def predict(self, space: StagedSpace, choices: Choices, num_classes: int) -> dict[Deployment, Prediction]:
        """For each deployment, mean and standard deviation in ms of the n candidates in `choices` (n, decisions)."""
        columns = network_columns(space.slots(choices, num_classes))
        found = {}
        for deployment, predictor in self._predictors.items():
            correction = self.corrections.get(deployment, Correction())
            prediction = predictor.predict(columns)
            mean = prediction.mean * correction.factor
            std = np.hypot(prediction.std * correction.factor, mean * correction.relative_std)
            found[deployment] = Prediction(mean=mean, std=std)
        return found

    def fastest(self, space: StagedSpace, choices: Choices, num_classes: int) -> tuple[NDArray[np.int64], Prediction]:
        """Each candidate's fastest deployment (position in `deployments`, (n,)) and its prediction."""
        predictions = self.predict(space, choices, num_classes)
        means = np.stack([predictions[d].mean for d in self.deployments])
        stds = np.stack([predictions[d].std for d in self.deployments])
        best = means.argmin(axis=0)
        columns = np.arange(means.shape[1])
        return best, Prediction(mean=means[best, columns], std=stds[best, columns])


def columns_of(archs: Sequence[Architecture], num_classes: int) -> NDArray[np.float64]:
    """What explains the latency of architectures of several staged spaces, in order: (n, k)."""
    parts = []
    for arch in archs:
        space = load_search_space(arch.space)
        parts.append(space.slots(space.choices([arch]), num_classes))
    return network_columns(concatenate_slots(parts))


def held_out_error(profile: DeviceProfile, deployment: Deployment, every: int = 4) -> HeldOutError | None:
    """Fit on all but every `every`-th network of the profile and judge on those; None with too few of either."""
    table = profile.table(deployment)
    latency = np.array(table.latency_ms if table else (), dtype=np.float64)
    measured = np.flatnonzero(np.isfinite(latency))
    test, train = measured[measured % every == every - 1], measured[measured % every != every - 1]
    if len(train) < MIN_NETWORKS or len(test) < 3:
        return None
    from scipy.stats import kendalltau

    fitted = BlockLatencyPredictor().fit(
        columns_of([profile.networks[i] for i in train], profile.num_classes), latency[train]
    )
    columns = columns_of([profile.networks[i] for i in test], profile.num_classes)
    predicted, truth = fitted.predict(columns).mean, latency[test]
    log_macs = np.array([np.log(_macs(profile, i)) for i in range(len(profile.networks))])
    slope = np.polyfit(log_macs[train], np.log(latency[train]), 1)
    macs_only = np.exp(np.polyval(slope, log_macs[test]))

    def hits(prediction: NDArray[np.float64] | np.floating, tolerance: float) -> float:
        return float((np.abs(prediction / truth - 1) <= tolerance).mean())

    return HeldOutError(
        networks=len(test),
        mape=float(np.abs(predicted / truth - 1).mean()),
        within_5pct=hits(predicted, 0.05),
        within_10pct=hits(predicted, 0.10),
        kendall_tau=float(kendalltau(predicted, truth).statistic),
        constant_within_10pct=hits(np.median(latency[train]), 0.10),
        macs_within_10pct=hits(macs_only, 0.10),
    )


def _macs(profile: DeviceProfile, index: int) -> float:
    arch = profile.networks[index]
    space = load_search_space(arch.space)
    return float(space.costs(space.choices([arch]), profile.num_classes)["macs"][0])
