"""The limits as a question to ask of many candidates at once, counting how often it was asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.controller.prediction.probes import FileModel
from nas.deploy.tried import INT8
from nas.deployment import Deployment
from nas.limits import Limits
from nas.targets.latency import Z_90, LatencyModel
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateForecast:
    """Predictions for n candidates in one deployment: a `nas.limits.Forecast`."""

    deployment: Deployment
    upper_ms: NDArray[np.float64]
    costs: Mapping[str, NDArray[np.float64]]
    files: FileModel
    limits_tail: bool = True
    """False: slow calls are not limited, and what is known of them does not count."""

    @property
    def batch(self) -> int:
        return self.deployment.batch

    @property
    def tail(self) -> float:
        return self.files.tail(self.deployment) if self.limits_tail else 1.0

    def size_mb(self) -> NDArray[np.float64]:
        return self.files.size_mb(self.deployment, self.costs)

    def memory_mb(self) -> NDArray[np.float64]:
        return self.files.memory_mb(self.deployment, self.costs)


class CandidateScorer:
    """Tells which candidates are predicted to keep the limits; `scored` counts the candidates asked about."""

    def __init__(
        self,
        space: SearchSpace,
        model: LatencyModel,
        limits: Limits,
        size: Size,
        *,
        files: FileModel | None = None,
        affordable: Callable[[Choices], NDArray[np.bool_]] | None = None,
    ) -> None:
        """`files`: what is known of sizes, memory and slow calls. `affordable` tells which candidates can be trained
        within the budget; None: all."""
        self.space = space
        self.model = model
        self.limits = limits
        self.size = size
        self.files = files or FileModel()
        self.affordable = affordable
        self.scored = 0

    def asking(self, affordable: Callable[[Choices], NDArray[np.bool_]] | None) -> "CandidateScorer":
        """A scorer of the same limits that asks whether a training is `affordable`, too (None: not); it has counted
        nothing yet."""
        return CandidateScorer(self.space, self.model, self.limits, self.size, files=self.files, affordable=affordable)

    def feasible(self, choices: Choices) -> NDArray[np.bool_]:
        """(n, decisions) -> (n,): some deployment keeps every limit that can be predicted, latencies by the upper end
        of the 90 % interval, and training is affordable."""
        self.scored += len(choices)
        within: NDArray[np.bool_] = self.worst_ratio(choices) <= 1.0
        return within if self.affordable is None else within & self.affordable(choices)

    def feasible_within(self, call_ms: float) -> Callable[[Choices], NDArray[np.bool_]]:
        """`feasible` with a tighter limit on the median call (of the fastest deployment)."""

        def feasible(choices: Choices) -> NDArray[np.bool_]:
            _, prediction = self.model.fastest(self.space, choices, self.size)
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
        predicted, deployments = self.limits.predicted, self.model.deployments
        predictions = self.model.predict(self.space, choices, self.size)
        costs = self.space.costs(choices, self.size)
        found = np.empty((len(predicted), len(deployments), len(choices)))
        for i, deployment in enumerate(deployments):
            prediction = predictions[deployment]
            upper_ms = prediction.mean + Z_90 * prediction.std
            forecast = CandidateForecast(
                deployment=deployment,
                upper_ms=upper_ms,
                costs=costs,
                files=self.files,
                limits_tail=self.limits.limits_tail,
            )
            for row, limit in enumerate(predicted):
                found[row, i] = limit.ratio(forecast)
        return found

    def excesses(self, arch: Architecture) -> dict[str, float]:
        """Excess of one candidate over each predicted limit, as a part of the limit; negative: it keeps it.

        The latency is the expected one, not its upper end, in the deployment of `describe`.
        """
        choices = self.space.choices([arch])
        latency = self.describe(arch)
        ratios = self.ratios(choices)[:, self.model.deployments.index(latency.deployment), 0]
        found = {}
        for limit, ratio in zip(self.limits.predicted, ratios, strict=True):
            excess = float(ratio - 1.0)
            found[limit.name] = (
                (excess + 1.0) * latency.mean_ms / latency.upper_ms - 1.0 if limit.by_latency else excess
            )
        return found

    def describe(self, arch: Architecture) -> PredictedLatency:
        """One candidate's prediction in its fastest deployment; of those that keep the limits, where there are any."""
        return self.describe_all(self.space.choices([arch]))[0]

    def describe_all(self, choices: Choices) -> list[PredictedLatency]:
        """`describe` for each of n candidates (n, decisions), at little more than the cost of one."""
        if not len(choices):
            return []
        predictions = self.model.predict(self.space, choices, self.size)
        deployments = self.model.deployments
        means = np.stack([predictions[d].mean for d in deployments])
        kept = self.ratios(choices).max(axis=0, initial=0.0) <= 1.0
        best = np.where(kept | ~kept.any(axis=0), means, np.inf).argmin(axis=0)
        return [
            PredictedLatency(deployments[at], float(means[at, i]), float(predictions[deployments[at]].std[i]))
            for i, at in enumerate(best)
        ]

    def predicted(self, arch: Architecture, deployment: Deployment) -> PredictedLatency:
        """One candidate's prediction in a given deployment."""
        prediction = self.model.predict(self.space, self.space.choices([arch]), self.size)[deployment]
        return PredictedLatency(deployment, float(prediction.mean[0]), float(prediction.std[0]))

    def worth_trying(self, arch: Architecture, count: int) -> list[Deployment]:
        """The `count` (at least 2) deployments that one candidate is best tried in, where there is no time for all.

        Those predicted to be fastest; but one that rounds no weights and one that does are both among them where they
        are predicted to keep the limits: which of the two is more accurate is known of trained networks only.
        """
        choices = self.space.choices([arch])
        predictions = self.model.predict(self.space, choices, self.size)
        order = sorted(self.model.deployments, key=lambda d: float(predictions[d].mean[0]))
        worst = self.ratios(choices).max(axis=0, initial=0.0)[:, 0]
        kept = {d for d, ratio in zip(self.model.deployments, worst, strict=True) if ratio <= 1.0}
        first = [
            next((d for d in order if d in kept and (d.computes_in == INT8) is rounds), None)
            for rounds in (False, True)
        ]
        ranked = [d for d in first if d is not None] + [d for d in order if d not in first]
        return sorted(ranked[:count], key=self.model.deployments.index)
