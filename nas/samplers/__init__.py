"""Samplers by name. Each is an ordinary Optuna sampler for studies over one search space."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.samplers import BaseSampler

from nas.samplers.base import (
    INTERRUPTED_ATTR,
    Feasible,
    SpaceSampler,
    WithExamples,
    architecture_of,
    random_feasible,
)
from nas.samplers.learnt import LATENCY_CONSTRAINT, PROXIES_ATTR, Features, LearntLatency, Worth
from nas.samplers.standard import DistinctSampler, RandomFeasibleSampler
from nas.samplers.surrogate import ProxyScores, SurrogateSampler, SurrogateSettings
from search_spaces import Architecture, SearchSpace
from search_spaces.errors import UnknownNameError

__all__ = [
    "INTERRUPTED_ATTR",
    "LATENCY_CONSTRAINT",
    "PROXIES_ATTR",
    "SAMPLERS",
    "DistinctSampler",
    "Feasible",
    "LearntLatency",
    "ProxyScores",
    "RandomFeasibleSampler",
    "SamplerTask",
    "SpaceSampler",
    "SurrogateSampler",
    "SurrogateSettings",
    "WithExamples",
    "Worth",
    "architecture_of",
    "make_sampler",
    "random_feasible",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerTask:
    """Information about a search for its sampler. Samplers that do not learn have no use for the lower half.

    A study's first objective is the accuracy. Limits that are known without an evaluation are in `feasible`; those that
    only an evaluation shows are constraints of its trial (`Trial.set_constraint`), which every sampler sees.
    """

    space: SearchSpace
    feasible: Feasible | None = None
    seed: int = 0
    latency: LearntLatency | None = None
    features: Features | None = None
    proxies: ProxyScores | None = None
    designs: Sequence[Architecture] | None = None
    """To be evaluated first, in place of the space's well-known designs; they keep all limits."""
    worth: Worth | None = None
    """What the values of finished trials are worth; None: what they say."""
    settings: SurrogateSettings | None = None


def _surrogate(task: SamplerTask) -> BaseSampler:
    return SurrogateSampler(
        task.space,
        task.feasible,
        task.proxies,
        latency=task.latency,
        features=task.features,
        designs=task.designs,
        worth=task.worth,
        settings=task.settings,
        seed=task.seed,
    )


def _tpe(task: SamplerTask) -> BaseSampler:
    return DistinctSampler(
        task.space, lambda seed: optuna.samplers.TPESampler(seed=seed), feasible=task.feasible, seed=task.seed
    )


def _nsga2(task: SamplerTask) -> BaseSampler:
    return DistinctSampler(
        task.space, lambda seed: optuna.samplers.NSGAIISampler(seed=seed), feasible=task.feasible, seed=task.seed
    )


def _gp(task: SamplerTask) -> BaseSampler:
    # each proposal is a fit: ask it twice at most. The second time it counts the first proposal as running elsewhere
    return DistinctSampler(
        task.space,
        lambda seed: optuna.samplers.GPSampler(seed=seed),
        feasible=task.feasible,
        attempts=2,
        seed=task.seed,
    )


def _random(task: SamplerTask) -> BaseSampler:
    return RandomFeasibleSampler(task.space, task.feasible, seed=task.seed)


SAMPLERS: Mapping[str, Callable[[SamplerTask], BaseSampler]] = {
    "surrogate": _surrogate,
    "tpe": _tpe,
    "nsga2": _nsga2,
    "gp": _gp,
    "random": _random,
}
"""The first is the default and the product's own; the others are the baselines it is measured against."""


def make_sampler(name: str, task: SamplerTask) -> BaseSampler:
    """The sampler called `name`; raises `UnknownNameError`."""
    if name not in SAMPLERS:
        raise UnknownNameError("sampler", name, SAMPLERS)
    return SAMPLERS[name](task)
