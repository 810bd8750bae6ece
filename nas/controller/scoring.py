"""The limits as a question to ask of many candidates at once, counting how often it was asked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment
from nas.targets.latency import Z_90, LatencyModel
from search_spaces import Architecture, Choices, StagedSpace


@dataclass(frozen=True, slots=True)
class PredictedLatency:
    """A candidate's fastest deployment, as predicted."""

    deployment: Deployment
    mean_ms: float
    std_ms: float

    @property
    def upper_ms(self) -> float:
        """Upper end of the central 90 % interval."""
        return self.mean_ms + Z_90 * self.std_ms


class LatencyScorer:
    """Which candidates are predicted to keep the limit; `scored` counts the candidates asked about."""

    def __init__(
        self,
        space: StagedSpace,
        model: LatencyModel,
        limit_ms: float,
        num_classes: int,
        *,
        affordable: Callable[[Choices], NDArray[np.bool_]] | None = None,
    ) -> None:
        """`affordable` tells which candidates can be trained within the budget; None: all."""
        self.space = space
        self.model = model
        self.limit_ms = limit_ms
        self.num_classes = num_classes
        self.affordable = affordable
        self.scored = 0

    def feasible(self, choices: Choices) -> NDArray[np.bool_]:
        """(n, decisions) -> (n,): the upper end of the 90 % interval keeps the limit, and training is affordable."""
        self.scored += len(choices)
        _, prediction = self.model.fastest(self.space, choices, self.num_classes)
        within: NDArray[np.bool_] = prediction.mean + Z_90 * prediction.std <= self.limit_ms
        return within if self.affordable is None else within & self.affordable(choices)

    def describe(self, arch: Architecture) -> PredictedLatency:
        """One candidate's prediction in its fastest deployment."""
        best, prediction = self.model.fastest(self.space, self.space.choices([arch]), self.num_classes)
        deployment = self.model.deployments[int(best[0])]
        return PredictedLatency(deployment, float(prediction.mean[0]), float(prediction.std[0]))

    def predicted(self, arch: Architecture, deployment: Deployment) -> PredictedLatency:
        """One candidate's prediction in a given deployment."""
        prediction = self.model.predict(self.space, self.space.choices([arch]), self.num_classes)[deployment]
        return PredictedLatency(deployment, float(prediction.mean[0]), float(prediction.std[0]))
