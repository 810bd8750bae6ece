"""The limits as a question to ask of many candidates at once, counting how often it was asked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.controller.probes import FileModel
from nas.deployment import Deployment
from nas.limits import Limits
from nas.targets.latency import Z_90, LatencyModel
from search_spaces import Architecture, Choices, StagedSpace


@dataclass(frozen=True, slots=True)
class PredictedLatency:
    """A candidate in one deployment, as predicted: its median call."""

    deployment: Deployment
    mean_ms: float
    std_ms: float

    @property
    def upper_ms(self) -> float:
        """Upper end of the central 90 % interval."""
        return self.mean_ms + Z_90 * self.std_ms


class CandidateScorer:
    """Which candidates are predicted to keep the limits; `scored` counts the candidates asked about."""

    def __init__(
        self,
        space: StagedSpace,
        model: LatencyModel,
        limits: Limits,
        num_classes: int,
        *,
        files: FileModel | None = None,
        affordable: Callable[[Choices], NDArray[np.bool_]] | None = None,
    ) -> None:
        """`files`: what is known of sizes, memory and slow calls. `affordable` tells which candidates can be trained
        within the budget; None: all."""
        self.space = space
        self.model = model
        self.limits = limits
        self.num_classes = num_classes
        self.files = files or FileModel()
        self.affordable = affordable
        self.scored = 0

    def feasible(self, choices: Choices) -> NDArray[np.bool_]:
        """(n, decisions) -> (n,): some deployment keeps every limit that can be predicted, latencies by the upper end
        of the 90 % interval, and training is affordable."""
        self.scored += len(choices)
        within: NDArray[np.bool_] = self.worst_ratio(choices) <= 1.0
        return within if self.affordable is None else within & self.affordable(choices)

    def feasible_within(self, call_ms: float) -> Callable[[Choices], NDArray[np.bool_]]:
        """`feasible` with a tighter limit on the median call (of the fastest deployment)."""

        def feasible(choices: Choices) -> NDArray[np.bool_]:
            _, prediction = self.model.fastest(self.space, choices, self.num_classes)
            tighter: NDArray[np.bool_] = prediction.mean + Z_90 * prediction.std <= call_ms
            return self.feasible(choices) & tighter

        return feasible

    def worst_ratio(self, choices: Choices) -> NDArray[np.float64]:
        """(n, decisions) -> (n,): the limit that is missed most, over the limit, in each one's best deployment."""
        worst: NDArray[np.float64] = self.ratios(choices).max(axis=0, initial=0.0).min(axis=0)
        return worst

    def ratios(self, choices: Choices) -> NDArray[np.float64]:
        """(n, decisions) -> (limits, deployments, n): each predicted limit's value over the limit; up to 1 keeps it.

        The limits are in the order of `Limits.predicted`. Latencies are upper ends of the 90 % interval.
        """
        limits, deployments = self.limits, self.model.deployments
        predictions = self.model.predict(self.space, choices, self.num_classes)
        upper = np.stack([predictions[d].mean + Z_90 * predictions[d].std for d in deployments])
        costs = self.space.costs(choices, self.num_classes)
        values: dict[str, Callable[[int, Deployment], NDArray[np.float64]]] = {
            "latency_ms": lambda i, d: upper[i] * self.files.tail(d) / (limits.latency_ms or 1.0),
            "throughput": lambda i, d: upper[i] * (limits.throughput or 1.0) / (1e3 * d.batch),
            "max_params": lambda i, d: costs["params"] / (limits.max_params or 1.0),
            "max_size_mb": lambda i, d: self.files.size_mb(d, costs) / (limits.max_size_mb or 1.0),
            "max_memory_mb": lambda i, d: self.files.memory_mb(d, costs) / (limits.max_memory_mb or 1.0),
        }
        found = np.empty((len(limits.predicted), len(deployments), len(choices)))
        for row, name in enumerate(limits.predicted):
            for i, deployment in enumerate(deployments):
                found[row, i] = values[name](i, deployment)
        return found

    def excesses(self, arch: Architecture) -> dict[str, float]:
        """By how much one candidate exceeds each predicted limit, as a part of the limit; negative: it keeps it.

        By the expected latency, not its upper end, in the deployment of `describe`.
        """
        choices = self.space.choices([arch])
        latency = self.describe(arch)
        ratios = self.ratios(choices)[:, self.model.deployments.index(latency.deployment), 0]
        found = {name: float(ratio - 1.0) for name, ratio in zip(self.limits.predicted, ratios, strict=True)}
        for name in {"latency_ms", "throughput"} & found.keys():
            found[name] = (found[name] + 1.0) * latency.mean_ms / latency.upper_ms - 1.0
        return found

    def describe(self, arch: Architecture) -> PredictedLatency:
        """One candidate's prediction in its fastest deployment; of those that keep the limits, where there are any."""
        choices = self.space.choices([arch])
        predictions = self.model.predict(self.space, choices, self.num_classes)
        kept = self.ratios(choices)[:, :, 0].max(axis=0, initial=0.0) <= 1.0
        deployments = [d for d, keeps in zip(self.model.deployments, kept, strict=True) if keeps]
        best = min(deployments or self.model.deployments, key=lambda d: float(predictions[d].mean[0]))
        return PredictedLatency(best, float(predictions[best].mean[0]), float(predictions[best].std[0]))

    def predicted(self, arch: Architecture, deployment: Deployment) -> PredictedLatency:
        """One candidate's prediction in a given deployment."""
        prediction = self.model.predict(self.space, self.space.choices([arch]), self.num_classes)[deployment]
        return PredictedLatency(deployment, float(prediction.mean[0]), float(prediction.std[0]))
