"""Tight limits: a few networks near them are measured first, since predictions are uncertain by ten or twenty per cent.

Where the fastest networks are predicted to take about as long as the limit allows, they tell whether it can be kept at
all. Where most networks take longer than that, they tell how far a candidate may be trusted to go: one that has to keep
a limit by the upper end of its interval leaves a fifth of it unused where the standard deviation is an eighth.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from nas.controller.prediction.feasibility import SAMPLES, descend, fastest_networks
from nas.controller.prediction.target_model import TargetModel
from nas.deployment import ALONE, Deployment
from nas.limits import Limits
from nas.measure.measurement import QUIET
from nas.progress import Progress
from nas.targets.latency import Z_90, Checked, LatencyModel
from nas.targets.profiling import measure_networks
from predictors.base import Prediction
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

EDGE = "the limit is at the edge of what the target can do"
TIGHT = "most networks take longer than the limit"
LEVEL = 0.95
"""Quantile of the upper end of a central 90 % interval."""
NETWORKS = 6
AMONG = 48
"""The fastest networks that a descent finds, of which every so many is measured."""
FEWEST, MOST_DEPLOYMENTS = 5, 64
"""Networks that are measured in a short budget, and the most deployments in a long one."""
LEAST = 4
"""Fewest measured networks that tell something of a deployment."""
REACH, REACH_STDS = 1.5, 3.0
"""A limit is out of reach where the fastest network is expected to take so many times as long, and so many standard
deviations longer: a profile of few networks may be wrong by a factor."""
SECONDS = 0.15
SHARE = 0.3
"""Largest share of a budget that is planned for it."""
PREPARED_S, LOADED_S, SPACED_CALLS = 1.2, 0.5, 15
"""Planned for a network: seconds of preparing it, those of a session of one deployment, and in a session the calls with
pauses, with those to warm up. Measured on two cores of a Xeon at 2.5 GHz."""
TIGHT_SHARE = 0.03
"""Largest share of a budget for networks near a tight limit: what it gains is a little accuracy."""
MOST_TOO_SLOW = 0.5
"""A limit is tight where more of the space than this is predicted to exceed it."""
NEAR = 0.9
"""The networks of a tight limit are predicted to take about so much of it."""
UNSURE_STD = 0.06
"""Relative standard deviation of predictions near the limit below which measuring would gain nothing."""
LEAST_STD = 0.03
"""Relative standard deviation that is left: sessions of a quiet machine differ by as much."""


def at_the_edge(
    target: TargetModel, space: SearchSpace, size: Size, limits: Limits, seed: int, progress: Progress,
    budget_s: float = math.inf,
) -> TargetModel | None:  # fmt: skip
    """The target with predictions that follow a few of its fastest networks, measured now.

    Where measuring them all would take more than `SHARE` of `budget_s`, fewer are, in the deployments that are expected
    to be fastest.

    None where that would tell nothing: no limit is on calls, the fastest networks surely keep it (something else is in
    the way), it is far out of reach, or nothing can be measured.
    """
    if target.site is None:
        return None
    rng = np.random.default_rng(seed)
    choices = fastest_networks(space, target.model, size, space.sample(SAMPLES, rng), rng)[:AMONG]
    expected = target.model.predict(space, choices, size)
    limit_ms = {d: limits.call_limit_ms(d.batch) for d in expected if math.isfinite(limits.call_limit_ms(d.batch))}
    surely = any(np.any(expected[d].mean + Z_90 * expected[d].std <= ms) for d, ms in limit_ms.items())
    if surely and not limits.limits_tail:
        return None
    near = [d for d, ms in limit_ms.items() if within_reach(expected[d], ms)]
    if not near:
        return None
    progress.note(f"{EDGE}: measuring some of the fastest networks")
    near.sort(key=lambda d: float(expected[d].mean.min()) / limit_ms[d])
    count, most = affordable(SHARE * budget_s, max(d.interval_ms for d in near))
    near = near[:most]
    picked = [space.architecture(row) for row in choices[:: max(1, len(choices) // count)][:count]]
    checks = check_networks(target, space, picked, near, size, limits, seed)
    return followed(target, checks, f"{EDGE}: {len(picked)} of its fastest networks were measured first")


def near_a_tight_limit(
    target: TargetModel, space: SearchSpace, size: Size, limits: Limits, seed: int, progress: Progress,
    budget_s: float = math.inf,
) -> TargetModel | None:  # fmt: skip
    """The target with predictions that follow a few networks just below a limit that most of the space exceeds.

    They are measured in the deployments that are expected to be fastest, as many as `TIGHT_SHARE` of `budget_s` allows.

    None where that would gain nothing: no limit is on calls, most networks keep it, the predictions near it are good
    already, the time is too short, or nothing can be measured.
    """
    seconds, pause_ms = TIGHT_SHARE * budget_s, max((d.interval_ms for d in target.model.deployments), default=0.0)
    count, most = affordable(seconds, pause_ms)
    if target.site is None or count * (PREPARED_S + most * session_seconds(pause_ms)) > seconds:
        return None
    rng = np.random.default_rng(seed)
    sampled = space.sample(SAMPLES, rng)
    if not is_tight(target.model, space, sampled, size, limits):
        return None

    def far_off(choices: Choices) -> NDArray[np.float64]:
        """(n, decisions) -> (n,): how far each is from taking `NEAR` of its limit."""
        distance: NDArray[np.float64] = np.abs(np.log(shares(target.model, space, choices, size, limits) / NEAR))
        return distance

    limit_ms = {d: limits.call_limit_ms(d.batch) for d in target.model.deployments}
    choices = descend(space, far_off, sampled, rng)[:AMONG]
    expected = target.model.predict(space, choices, size)
    near = sorted(expected, key=lambda d: float(np.median(expected[d].mean)) / limit_ms[d])[:most]
    if float(np.median(expected[near[0]].std / expected[near[0]].mean)) < UNSURE_STD:
        return None
    progress.note(f"{TIGHT}: measuring a few that are predicted to be just below it")
    picked = [space.architecture(row) for row in choices[:: max(1, len(choices) // count)][:count]]
    checks = check_networks(target, space, picked, near, size, limits, seed)
    return followed(
        target, checks, f"{TIGHT}: {len(picked)} that are predicted to be just below it were measured first"
    )


def is_tight(model: LatencyModel, space: SearchSpace, sampled: Choices, size: Size, limits: Limits) -> bool:
    """True if a limit is on calls, and more of `sampled` (n, decisions) than `MOST_TOO_SLOW` is expected to exceed
    it."""
    limited = any(math.isfinite(limits.call_limit_ms(d.batch)) for d in model.deployments)
    return limited and bool(np.mean(shares(model, space, sampled, size, limits) > 1.0) >= MOST_TOO_SLOW)


def shares(
    model: LatencyModel, space: SearchSpace, choices: Choices, size: Size, limits: Limits
) -> NDArray[np.float64]:
    """(n, decisions) -> (n,): of its limit that a call of each network takes, as expected, in its best deployment."""
    predicted = model.predict(space, choices, size)
    smallest: NDArray[np.float64] = np.min(
        [p.mean / limits.call_limit_ms(d.batch) for d, p in predicted.items()], axis=0
    )
    return smallest


def followed(target: TargetModel, checks: Mapping[Deployment, Checked], note: str) -> TargetModel | None:
    """The target with predictions that follow what was found; None where nothing was."""
    if not checks:
        return None
    return replace(target, model=target.model.checked(checks), notes=(*target.notes, note))


def session_seconds(interval_ms: float) -> float:
    """Planned for a session of one network in one deployment that is called so."""
    return LOADED_S + SPACED_CALLS * interval_ms / 1e3


def affordable(seconds: float, interval_ms: float) -> tuple[int, int]:
    """(networks, deployments of each) that can be measured in about so many seconds: at least `FEWEST` in one."""
    session_s = session_seconds(interval_ms)
    for networks in (NETWORKS, FEWEST):
        deployments = (seconds / networks - PREPARED_S) / session_s
        if deployments >= 2:
            break
    return networks, max(1, int(min(deployments, MOST_DEPLOYMENTS)))


def within_reach(fastest: Prediction, limit_ms: float) -> bool:
    """False if not even one of the fastest networks may keep the limit on a call."""
    return bool(np.any((fastest.mean <= REACH * limit_ms) | (fastest.mean - REACH_STDS * fastest.std <= limit_ms)))


def check_networks(
    target: TargetModel,
    space: SearchSpace,
    archs: list[Architecture],
    near: Sequence[Deployment],
    size: Size,
    limits: Limits,
    seed: int,
) -> dict[Deployment, Checked]:
    """For each of the deployments `near` a limit, how the measured latencies of `archs` compare with the predicted."""
    assert target.site is not None
    model: LatencyModel = target.model.of_networks()
    deployments = list(dict.fromkeys(d.covering(ALONE) for d in near))
    rows = measure_networks(
        archs, deployments, sessions=1, seconds_per_model=SECONDS, seed=seed, measure=target.site.measure
    )
    predicted = model.predict(space, space.choices(archs), size)
    found: dict[Deployment, Checked] = {}
    for column, deployment in enumerate(deployments):
        ratios = [
            row[column].p50_ms / mean
            for row, mean in zip(rows, predicted[deployment].mean, strict=True)
            if row[column].failed is None and row[column].verdict == QUIET
        ]
        if len(ratios) >= LEAST:
            scale = median(ratios)
            spread = float(np.std(np.array(ratios) / scale, ddof=1))
            # Of so few networks the interval is Student's.
            widened = spread * float(stdtrit(len(ratios) - 1, LEVEL)) / Z_90
            found[deployment] = Checked(scale, max(LEAST_STD, widened), limits.call_limit_ms(deployment.batch))
    return found
