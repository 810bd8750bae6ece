"""Whether a limit can be kept at all: asked before anything is trained."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nas.deployment import Deployment
from nas.errors import InfeasibleError
from nas.targets.latency import Z_90, LatencyModel
from search_spaces import Choices, StagedSpace

SAMPLES = 4096
DESCENT_ROUNDS = 12
DESCENT_POPULATION = 256


@dataclass(frozen=True, slots=True)
class DeploymentRange:
    """Predicted latencies of the space in one deployment, ms."""

    deployment: Deployment
    min_ms: float
    """The fastest network found, at the upper end of its 90 % interval."""
    median_ms: float
    max_ms: float
    satisfiable: bool


def latency_ranges(
    space: StagedSpace, model: LatencyModel, limit_ms: float, num_classes: int, rng: np.random.Generator
) -> tuple[DeploymentRange, ...]:
    """For every deployment, what the space spans on the target and whether the limit lies within."""
    sampled = space.sample(SAMPLES, rng)
    predictions = model.predict(space, sampled, num_classes)
    fastest = fastest_networks(space, model, num_classes, sampled, rng)
    reached = model.predict(space, fastest, num_classes)
    ranges = []
    for deployment in model.deployments:
        mean = predictions[deployment].mean
        upper = reached[deployment].mean + Z_90 * reached[deployment].std
        ranges.append(
            DeploymentRange(
                deployment=deployment,
                min_ms=float(upper.min()),
                median_ms=float(np.median(mean)),
                max_ms=float(mean.max()),
                satisfiable=bool(upper.min() <= limit_ms),
            )
        )
    return tuple(ranges)


def fastest_networks(
    space: StagedSpace, model: LatencyModel, num_classes: int, sampled: Choices, rng: np.random.Generator
) -> Choices:
    """The fastest networks an evolutionary descent on the predictor finds, fastest first."""
    population = sampled[: 4 * DESCENT_POPULATION]
    for _ in range(DESCENT_ROUNDS):
        _, prediction = model.fastest(space, population, num_classes)
        population = population[np.argsort(prediction.mean)[:DESCENT_POPULATION]]
        population = np.unique(np.concatenate([population, space.mutate(population, rng, 0.05)]), axis=0)
    _, prediction = model.fastest(space, population, num_classes)
    return population[np.argsort(prediction.mean)[:DESCENT_POPULATION]]


def require_feasible(ranges: Sequence[DeploymentRange], limit_ms: float, space: str, target: str) -> None:
    """Raises `InfeasibleError` naming the nearest limit that can be kept."""
    if any(r.satisfiable for r in ranges):
        return
    nearest = min(ranges, key=lambda r: r.min_ms)
    # Rounded up to two digits, so that the limit named can really be asked for.
    digits = 10 ** (1 - int(np.floor(np.log10(nearest.min_ms))))
    limit = float(np.ceil(nearest.min_ms * digits) / digits)
    raise InfeasibleError(
        f"no network of space {space!r} keeps {limit_ms:g} ms on {target!r}: "
        f"the nearest feasible limit is {limit:g} ms ({nearest.deployment.name})",
        f"ask for --latency-ms {limit:g} or more, or a lower --resolution",
    )
