"""Fewer deployments in a short search of networks that are called with pauses: what is measured waits most of the time.

Each deployment costs seconds before the search begins (small networks timed in both patterns, slow calls probed), while
finalists of such a search are tried in one or two.
"""

import math

import numpy as np

from nas.deployment import Deployment
from nas.limits import Limits
from nas.targets.latency import LatencyModel
from search_spaces import SearchSpace
from search_spaces.signature import Size

SHARE = 0.3
"""Of a budget, for measuring before the search begins."""
DEPLOYMENT_S = 10.0
"""Five networks of one deployment timed in both patterns, or three probed for slow calls and five near the limit: 8 to
10 s on two cores of an EPYC (Zen 4)."""
LEAST = 2
SAMPLES, NEAREST = 1024, 32
"""Random networks, and those of them nearest to the limit, which the deployments are compared by."""
ROUNDED = "int8"


def affordable_deployments(budget_s: float) -> int:
    """How many deployments a search of this budget considers where calls have pauses: at least `LEAST`."""
    return max(LEAST, int(SHARE * budget_s / DEPLOYMENT_S))


def promising(
    model: LatencyModel, space: SearchSpace, size: Size, limits: Limits, count: int
) -> tuple[Deployment, ...]:
    """The deployments that are expected to be fastest for networks near the limit, at most `count`, in the order of
    `model.deployments`.

    Rounding may cost a network its accuracy, so one that does not round is among them where there is one.

    Args:
        model: of calls as they are asked for.
        space: the searched one.
        size: of the networks' answers.
        limits: of the search; where none is on calls, all networks count alike.
        count: two or more.
    """
    known = model.deployments
    if len(known) <= count:
        return known
    predicted = model.predict(space, space.sample(SAMPLES, np.random.default_rng(0)), size)
    taken_ms = np.stack([predicted[d].mean for d in known])
    limit_ms = min(limits.call_limit_ms(d.batch) for d in known)
    if math.isfinite(limit_ms):
        distance = np.abs(np.log(taken_ms.min(axis=0) / limit_ms))
        taken_ms = taken_ms[:, np.argsort(distance, kind="stable")[:NEAREST]]
    order = np.argsort(np.median(taken_ms, axis=1), kind="stable").tolist()
    exact = [i for i in order if known[i].computes_in != ROUNDED]
    chosen = order[:count]
    if exact and not set(exact) & set(chosen):
        chosen[-1] = exact[0]
    return tuple(known[i] for i in sorted(chosen))
