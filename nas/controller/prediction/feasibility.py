"""Feasibility of the limits: asked before anything is trained."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.controller.prediction.scoring import CandidateScorer
from nas.deployment import Deployment
from nas.errors import InfeasibleError
from nas.limits import LatencyLimit, Limits
from nas.samplers.base import distinct, row_ids, untried
from nas.samplers.population import neighbours
from nas.targets.latency import Z_90, LatencyModel
from search_spaces import Choices, SearchSpace
from search_spaces.signature import Size

SAMPLES = 4096
ENOUGH = 32
"""Number of samples that keep the limits from which on random networks suffice: such networks are then found as they
are needed."""
DESCENT_ROUNDS = 60
DESCENT_POPULATION = 256
DESCENT_LOCAL = 2
"""So many of the best networks get all their neighbours looked at in each round."""

Score = Callable[[Choices], NDArray[np.float64]]
"""(n, decisions) -> (n,): lower is better."""


@dataclass(frozen=True, slots=True)
class DeploymentRange:
    """Predicted latencies of the space in one deployment, ms."""

    deployment: Deployment
    min_ms: float
    """The fastest network found, at the upper end of its 90 % interval."""
    expected_ms: float
    """The fastest network found, as expected."""
    median_ms: float
    max_ms: float
    satisfiable: bool
    """True if the limits on latency and throughput can be kept."""


def latency_ranges(
    space: SearchSpace, model: LatencyModel, limits: Limits, size: Size, rng: np.random.Generator
) -> tuple[DeploymentRange, ...]:
    """For every deployment, what the space spans on the target and whether the limit lies within."""
    sampled = space.sample(SAMPLES, rng)
    predictions = model.predict(space, sampled, size)
    fastest = fastest_networks(space, model, size, sampled, rng)
    reached = model.predict(space, fastest, size)
    ranges = []
    for deployment in model.deployments:
        mean = predictions[deployment].mean
        upper = reached[deployment].mean + Z_90 * reached[deployment].std
        ranges.append(
            DeploymentRange(
                deployment=deployment,
                min_ms=float(upper.min()),
                expected_ms=float(reached[deployment].mean.min()),
                median_ms=float(np.median(mean)),
                max_ms=float(mean.max()),
                satisfiable=bool(upper.min() <= limits.call_limit_ms(deployment.batch)),
            )
        )
    return tuple(ranges)


def fastest_networks(
    space: SearchSpace, model: LatencyModel, size: Size, sampled: Choices, rng: np.random.Generator
) -> Choices:
    """The fastest networks an evolutionary descent on the predictor finds, fastest first."""
    return descend(space, lambda choices: model.fastest(space, choices, size)[1].mean, sampled, rng)


def descend(space: SearchSpace, score: Score, sampled: Choices, rng: np.random.Generator) -> Choices:
    """The networks with the lowest score that an evolutionary descent from `sampled` finds, best first.

    It goes on until no change of one decision makes the best one better, for `DESCENT_ROUNDS` rounds at most: without
    these changes, the best of two descents differed by a third in spaces of many decisions.
    """
    population = sampled[: 4 * DESCENT_POPULATION]
    scores = score(population)
    for _ in range(DESCENT_ROUNDS):
        best = np.argsort(scores, kind="stable")[:DESCENT_POPULATION]
        population, scores, reached = population[best], scores[best], scores[best[0]]
        near = neighbours(space, population[:DESCENT_LOCAL])
        born = untried(distinct(np.concatenate([space.mutate(population, rng, 0.05), near])), row_ids(population))
        population, scores = np.concatenate([population, born]), np.concatenate([scores, score(born)])
        if scores.min() >= reached:
            break
    return population[np.argsort(scores, kind="stable")[:DESCENT_POPULATION]]


def require_feasible(
    ranges: Sequence[DeploymentRange], scorer: CandidateScorer, target: str, rng: np.random.Generator
) -> None:
    """Raises `InfeasibleError` naming the nearest limit that can be kept, and in a combination the one that binds."""
    limits, space = scorer.limits, scorer.space
    names = tuple(limit.name for limit in limits.predicted)
    if not names:
        return
    if not any(r.satisfiable for r in ranges) and names == (LatencyLimit.name,) and not limits.limits_tail:
        nearest = min(ranges, key=lambda r: r.min_ms)
        unsure = any(r.expected_ms <= limits.call_limit_ms(r.deployment.batch) for r in ranges)
        among = f" ({nearest.deployment.name})"
        raise _infeasible(limits, space.name, target, {LatencyLimit.name: nearest.min_ms}, among, unsure=unsure)
    sampled = space.sample(SAMPLES, rng)
    best = descend(space, scorer.worst_ratio, sampled, rng)[:1]
    if scorer.worst_ratio(best)[0] <= 1.0:
        return
    alone = {name: _lowest(scorer, names, row, sampled, rng) for row, name in enumerate(names)}
    if any(ratio is not None and ratio <= 1.0 for ratio in alone.values()):
        return  # this descent found what the first one did not
    binding = {name: limits[name].at_ratio(ratio) for name, ratio in alone.items() if ratio is not None}
    if binding:
        among = " with the other limits kept" if len(names) > 1 else ""
        raise _infeasible(limits, space.name, target, binding, among)
    # No single limit is to blame: name a whole combination that exists.
    ratios = scorer.ratios(best)[:, :, 0]
    ratios = ratios[:, int(ratios.max(axis=0).argmin())]
    together = _rounded(
        limits, {name: limits[name].at_ratio(float(r)) for name, r in zip(names, ratios, strict=True) if r > 1}
    )
    raise InfeasibleError(
        f"no network of space {space.name!r} keeps {limits.text} together on {target!r}: the nearest one that exists "
        f"needs {' and '.join(limits[n].quantity(v) for n, v in together.items())}",
        f"ask for {' '.join(f'{limits[n].option} {v:g}' for n, v in together.items())}",
    )


def examples(scorer: CandidateScorer, rng: np.random.Generator) -> Choices | None:
    """(n, decisions): networks that keep the limits and can be trained in time, where hardly any random one does; else
    of length 0, because nobody needs them. None where a descent finds none either."""

    def ratio(choices: Choices) -> NDArray[np.float64]:
        worst = scorer.worst_ratio(choices)
        return worst if scorer.affordable is None else np.where(scorer.affordable(choices), worst, 1e6 + worst)

    sampled = scorer.space.sample(SAMPLES, rng)
    if np.count_nonzero(ratio(sampled) <= 1.0) >= ENOUGH:
        return sampled[:0]
    best = descend(scorer.space, ratio, sampled, rng)
    found: Choices = best[ratio(best) <= 1.0]
    return found if len(found) else None


def _lowest(
    scorer: CandidateScorer, names: Sequence[str], row: int, sampled: Choices, rng: np.random.Generator
) -> float | None:
    """The lowest ratio to its limit that a limit reaches while all others are kept; None where they cannot be."""
    others = [i for i in range(len(names)) if i != row]

    def score(choices: Choices) -> NDArray[np.float64]:
        ratios = scorer.ratios(choices)
        missed = ratios[others].max(axis=0) if others else np.zeros(ratios.shape[1:])
        # Networks that miss another limit come after all that keep them, nearest first.
        ranked: NDArray[np.float64] = np.where(missed <= 1, ratios[row], 1e6 * missed).min(axis=0)
        return ranked

    reached = float(score(descend(scorer.space, score, sampled, rng)[:1])[0])
    return reached if reached < 1e6 else None


def _infeasible(
    limits: Limits, space: str, target: str, nearest: dict[str, float], detail: str, *, unsure: bool = False
) -> InfeasibleError:
    """`unsure`: some network is expected to keep the limits, but its interval reaches beyond them."""
    rounded = _rounded(limits, nearest)
    names = " or ".join(limits[name].quantity(value) for name, value in rounded.items())
    options = ", or ".join(
        f"{limits[n].option} {v:g} or {'more' if limits[n].at_most else 'less'}" for n, v in rounded.items()
    )
    keeps = "is sure to keep" if unsure else "keeps"
    finer = ", or make a finer profile with `nas profile`" if unsure else ""
    return InfeasibleError(
        f"no network of space {space!r} {keeps} {limits.asked} on {target!r}: "
        f"the nearest feasible limit is {names}{detail}",
        f"ask for {options}, or a lower --resolution{finer}",
    )


def _rounded(limits: Limits, nearest: Mapping[str, float]) -> dict[str, float]:
    """The nearest values, rounded to two digits towards the safe side, so that the limits named can really be asked
    for."""
    return {name: two_digits(value, up=limits[name].at_most) for name, value in nearest.items()}


def two_digits(value: float, *, up: bool) -> float:
    """Rounded to two significant digits, up or down."""
    digits = 10.0 ** (1 - math.floor(math.log10(value)))
    return float((math.ceil if up else math.floor)(value * digits) / digits)
