"""Small networks, which limits on calls with pauses ask for, and of which a profile of random networks tells little."""

import math

import numpy as np
from numpy.typing import NDArray

from nas.controller.prediction.feasibility import descend, fastest_networks
from nas.limits import Limits
from nas.targets.latency import LatencyModel
from nas.targets.profile import DeviceProfile
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

NETWORKS, ENOUGH = 3, 2
"""Networks that are chosen; none where the profile has so many that are fast enough."""
SAMPLES = 1024
"""Random networks that the descents begin from."""


def small_networks(
    space: SearchSpace, model: LatencyModel, profile: DeviceProfile, size: Size, limits: Limits
) -> list[Architecture]:
    """Networks from the fastest of the space to one that takes about the limit without pauses.

    What a pause adds to such a network is not told by larger ones (figures in docs/few-networks.md). The same for the
    same limits; none where no limit is on calls, or where the profile has some that are about as small.

    Args:
        space: the searched one.
        model: of calls without pauses.
        profile: the measured networks, those that were timed in the pattern among them.
        size: of the networks' answers.
        limits: of the search.
    """
    limit_ms = min(limits.call_limit_ms(d.batch) for d in model.deployments)
    if not math.isfinite(limit_ms):
        return []
    rng = np.random.default_rng(0)
    sampled = space.sample(SAMPLES, rng)
    found = [fastest_networks(space, model, size, sampled, rng)[0]]
    least_ms = float(model.fastest(space, found[0][None], size)[1].mean[0])
    wanted = np.geomspace(least_ms, max(least_ms, limit_ms), NETWORKS)
    tables = [t for d in model.deployments if (t := profile.table(d.continuous)) is not None]
    known_ms = np.array([t.column("latency_ms") for t in tables]).min(axis=0)
    if np.sum(known_ms <= wanted[NETWORKS // 2]) >= ENOUGH:
        return []
    for wanted_ms in wanted[1:]:

        def far_off(choices: Choices, wanted_ms: float = float(wanted_ms)) -> NDArray[np.float64]:
            """(n, decisions) -> (n,)"""
            distance: NDArray[np.float64] = np.abs(np.log(model.fastest(space, choices, size)[1].mean / wanted_ms))
            return distance

        found.append(descend(space, far_off, sampled, rng)[0])
    return list({arch.key: arch for arch in map(space.architecture, found)}.values())
