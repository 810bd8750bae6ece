"""Limits that nothing can keep, found within seconds, before anything takes a share of the budget to be measured."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nas.controller.prediction.feasibility import SAMPLES, descend, two_digits
from nas.deployment import Deployment
from nas.errors import InfeasibleError
from nas.limits import LatencyLimit, Limits
from nas.measure.site import Site
from nas.targets.latency import LatencyModel
from nas.targets.preparing import OUTPUT_SIZE, deploy_untrained
from search_spaces import Architecture, SearchSpace

HOPELESS = 2.0
"""The smallest network may take so many times its limit: the fastest one is not the smallest by a hair."""
SECONDS = 0.1


def require_within_reach(
    limits: Limits, space: SearchSpace, deployments: Sequence[Deployment], site: Site, seed: int, *,
    pauses: bool = False,
) -> None:  # fmt: skip
    """Raises `InfeasibleError` where the smallest network of the space takes far more than a call may.

    A profile takes a share of the budget, and who asks for a hundredth of a millisecond should not wait for it. Says
    nothing where no limit is on calls, or where the network cannot be measured. `deployments` are called without a
    pause; `pauses`: those of the limit have some.
    """
    limit_ms = min((limits.call_limit_ms(d.batch) for d in deployments), default=np.inf)
    if not np.isfinite(limit_ms):
        return
    with TemporaryDirectory(prefix="nas-reach-") as folder:
        requests = deploy_untrained(smallest(space, seed), deployments, Path(folder), seed)
        measured = site.measure(requests, sessions=1, seconds_per_model=SECONDS, repeat_s=0.0)
    known = [m for m in measured if m.failed is None]
    if not known:
        return
    fastest = min(known, key=lambda m: m.p50_ms)
    if fastest.p50_ms <= HOPELESS * limit_ms:
        return
    deployment, nearest_ms = fastest.request.deployment, two_digits(fastest.p50_ms, up=True)
    more = " (pauses between calls add to it)" if pauses else ""
    nearest = f"ask for {LatencyLimit(nearest_ms).option} {nearest_ms:g} or more{more}"
    hint = nearest if limits.latency else "ask for less"
    raise InfeasibleError(
        f"no network of space {space.name!r} can keep {limits.asked} on {site.name}: the smallest one takes "
        f"{fastest.p50_ms:.2g} ms ({deployment.name}, {deployment.calls} calls)",
        f"{hint}, or for a lower --resolution",
    )


def seems_out_of_reach(limits: Limits, space: SearchSpace, model: LatencyModel, seed: int) -> bool:
    """True if even the smallest network is predicted to take far more than a call may.

    Pauses between calls make none faster, and pre-processing none either: `model` may be of calls without both.
    """
    arch = smallest(space, seed)
    predicted = model.predict(space, space.choices([arch]), OUTPUT_SIZE)
    return all(p.mean[0] > HOPELESS * limits.call_limit_ms(d.batch) for d, p in predicted.items())


def smallest(space: SearchSpace, seed: int) -> Architecture:
    """The network of the fewest MACs that a descent finds."""
    rng = np.random.default_rng(seed)
    found = descend(space, lambda c: space.costs(c, OUTPUT_SIZE)["macs"], space.sample(SAMPLES, rng), rng)
    return space.architecture(found[0])
