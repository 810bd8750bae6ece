"""Calls with pauses between them, measured for networks that a device's profile knows without."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nas.calls import calls_text, interval_ms_of
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.measurement import Measurement
from nas.measure.site import Site, this_host
from nas.progress import Progress
from nas.targets.preparing import preparer
from nas.targets.profile import FAILED, DeploymentTable, DeviceProfile, NetworkTiming
from nas.targets.profiling import BATCH_OF_NETWORKS, measure_networks, timing_of
from nas.targets.registry import cached_profile
from predictors.call_pattern import MIN_NETWORKS

NETWORKS = 12
"""Networks that are timed in both patterns where a search needs it."""
PROFILED_NETWORKS = 24
"""The same where a device is profiled."""
SECONDS = 0.15
"""Of timing a network without pauses; with pauses it is `nas.measure.worker.spaced_calls`."""


def knows_calls(profile: DeviceProfile, deployments: Sequence[Deployment], interval_ms: float) -> bool:
    """True if the profile has enough networks of each deployment that were called every `interval_ms`."""
    tables = [profile.table(d.called(interval_ms)) for d in deployments]
    return all(table is not None and table.measured >= MIN_NETWORKS for table in tables)


def with_calls(
    profile: DeviceProfile,
    deployments: Sequence[Deployment],
    interval_ms: float,
    site: Site,
    *,
    path: Path,
    progress: Progress,
    networks: int = NETWORKS,
    seed: int = 0,
) -> DeviceProfile:
    """The profile with timings of calls that start every `interval_ms`, measured on `site` and saved to `path`; or what
    an earlier call saved there.

    The networks are some of the profile's own, from the fastest to the slowest. Each is timed in both patterns in the
    same sessions, so that a slower hour of the machine does not count for the pauses.

    Args:
        profile: of a host like the site.
        deployments: those to measure, called without a pause.
        interval_ms: from the start of one call to that of the next.
        site: the machine at hand.
        path: a file of the user's cache.
        progress: told of the networks.
        networks: how many of them.
        seed: of the weights.

    Raises:
        UserError: most of the networks could not be measured.
    """
    if knows_calls(profile, deployments, interval_ms):
        return profile
    earlier = completed_before(path, profile)
    if earlier is not None:
        if knows_calls(earlier, deployments, interval_ms):
            return earlier
        profile = earlier  # with other patterns, which are kept
    places = _spread(profile, deployments, networks)
    calls = calls_text(interval_ms)
    asked = [*deployments, *(d.called(interval_ms) for d in deployments)]
    rows: list[list[Measurement]] = []
    with progress.stage(f"timing calls at {calls}", len(places)) as bar, preparer() as workers:
        for start in range(0, len(places), BATCH_OF_NETWORKS):
            batch = [profile.networks[i] for i in places[start : start + BATCH_OF_NETWORKS]]
            rows += measure_networks(
                batch, asked, sessions=1, seconds_per_model=SECONDS, seed=seed + start, workers=workers,
                measure=site.measure,
            )  # fmt: skip
            bar.advance(len(batch))
    found = {d.called(interval_ms): _table(profile, d, interval_ms, places, rows) for d in deployments}
    for deployment, table in found.items():
        if table.measured < MIN_NETWORKS:
            raise UserError(
                f"only {table.measured} of {len(places)} networks could be called {calls} with {deployment.name} on "
                f"{site.name}",
                "give a lower rate, or --calls continuous",
            )
    others = tuple(t for t in profile.spaced if t.deployment not in found)
    known = replace(profile, spaced=(*others, *found.values()))
    known.save(path)
    return DeviceProfile.load(path)  # as whoever goes on later will find it: figures are rounded in the file


def with_patterns(profile: DeviceProfile, patterns: Sequence[str], path: Path, progress: Progress) -> DeviceProfile:
    """`with_calls` for all deployments of this host's profile and several patterns; `path`: the profile's own file."""
    deployments = [table.deployment for table in profile.tables]
    for interval_ms in filter(None, map(interval_ms_of, patterns)):
        profile = with_calls(
            profile, deployments, interval_ms, this_host(), path=path, progress=progress, networks=PROFILED_NETWORKS
        )
    return profile


def _spread(profile: DeviceProfile, deployments: Sequence[Deployment], count: int) -> list[int]:
    """Positions of `count` networks that the profile has in all `deployments`, evenly from fastest to slowest."""
    tables = [t for d in deployments if (t := profile.table(d)) is not None]
    latencies = np.array([table.column("latency_ms") for table in tables])
    usable = np.flatnonzero(np.isfinite(latencies).all(axis=0))
    order = usable[np.argsort(latencies[0][usable], kind="stable")]
    wanted = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    return [int(i) for i in order[wanted]]


def _table(
    profile: DeviceProfile,
    deployment: Deployment,
    interval_ms: float,
    places: Sequence[int],
    rows: Sequence[Sequence[Measurement]],
) -> DeploymentTable:
    """The timings with pauses, as they would have been when the profile was made."""
    before = profile.table(deployment)
    assert before is not None
    timings: list[NetworkTiming] = [FAILED] * len(profile.networks)
    for place, row in zip(places, rows, strict=True):
        now, spaced = (
            next(m for m in row if m.request.deployment == d) for d in (deployment, deployment.called(interval_ms))
        )
        timing = replace(timing_of(profile.networks[place], spaced), block_ms=())
        then_ms = before.timings[place].latency_ms
        factor = then_ms / now.p50_ms if now.failed is None else math.nan
        if math.isfinite(factor * timing.latency_ms):
            timings[place] = replace(timing, latency_ms=factor * timing.latency_ms)
    return DeploymentTable(deployment.called(interval_ms), tuple(timings))


def completed_before(path: Path, profile: DeviceProfile) -> DeviceProfile | None:
    """The profile at `path`, where it is this one with more patterns, as `with_calls` left it there."""
    found = cached_profile(path, profile)
    same = found is not None and found.networks == profile.networks and found.created == profile.created
    return found if same else None
