"""Calls with pauses between them, measured for networks that a device's profile knows without."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
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
from nas.targets.profiling import ALONE_UNTIL_S, BATCH_OF_NETWORKS, extended, measure_networks, timing_of
from nas.targets.registry import cached_profile
from predictors.call_pattern import MIN_NETWORKS
from search_spaces import Architecture

NETWORKS = 12
"""Networks that are timed in both patterns where a search needs it."""
PROFILED_NETWORKS = 24
"""The same where a device is profiled."""
LEAST = 5
"""Networks that are timed whatever the budget, where the profile has so many."""
LARGEST_SHARE = 0.5
"""Of the time between calls, which the slowest of them may take without pauses: a rate that cannot be kept tells
nothing, and a machine may be twice as slow at another hour."""
PATTERNS_SHARE = 0.4
"""Part of a profile's budget for calls with pauses, where they are asked for: most of their time is pauses."""
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
    budget_s: float = math.inf,
    seed: int = 0,
    small: Sequence[Architecture] = (),
) -> DeviceProfile:
    """The profile with timings of calls that start every `interval_ms`, measured on `site` and saved to `path`; with
    those that an earlier call saved there.

    The networks are some of the profile's own, from the fastest to the slowest that keeps the rate, and a few small
    ones. Each is timed in both patterns in the same sessions, so that a slower hour of the machine does not count for
    the pauses. What is known suffices where the budget is short, unless it lacks small ones; a longer one goes on from
    it.

    Args:
        profile: of a host like the site.
        deployments: those to measure, called without a pause.
        interval_ms: from the start of one call to that of the next.
        site: the machine at hand.
        path: a file of the user's cache.
        progress: told of the networks.
        networks: how many of them.
        budget_s: seconds after which no more are timed; `LEAST` are, however long they take.
        seed: of the weights.
        small: networks that are timed besides, and become part of the profile.

    Raises:
        UserError: most of the networks could not be measured.
    """
    earlier = with_earlier_calls(profile, deployments, interval_ms, path)
    new = [arch for arch in small if arch not in earlier.networks]
    profile = extended(earlier, new, [[] for _ in new], 0.0) if new else earlier
    known, done = knows_calls(profile, deployments, interval_ms), _timed(profile, deployments, interval_ms)
    added = [profile.networks.index(arch) for arch in small]
    lacking = [p for p in added if p not in done]
    wanted = _outside_in(_spread(profile, deployments, interval_ms, networks - len(added)))
    # Small ones with others, which may be known: these tell how fast the device is now.
    first = [*wanted[: max(1, LEAST - len(lacking))], *lacking] if lacking else []
    rest = [p for p in wanted if p not in done and p not in first][: max(0, networks - len(done) - len(first))]
    if known and not lacking and (not rest or budget_s < ALONE_UNTIL_S):
        return earlier
    rest = [*first, *rest]
    calls, start = calls_text(interval_ms), time.monotonic()
    asked = [*deployments, *(d.called(interval_ms) for d in deployments)]
    timed: dict[int, Sequence[Measurement]] = {}
    # Worker processes have to import every runtime first: for a few networks that takes longer than it saves.
    workers_for_many = preparer() if budget_s >= ALONE_UNTIL_S else nullcontext()
    longest = 0.0
    with progress.stage(f"timing calls at {calls}", len(rest)) as bar, workers_for_many as workers:
        least = 0 if known and not lacking else LEAST
        while rest and (len(timed) < least or time.monotonic() - start + longest < budget_s):
            began, count = time.monotonic(), BATCH_OF_NETWORKS if timed or not least else LEAST
            batch, rest = rest[:count], rest[count:]
            rows = measure_networks(
                [profile.networks[place] for place in batch], asked, sessions=1, seconds_per_model=SECONDS,
                seed=seed + len(timed), workers=workers, measure=site.measure,
            )  # fmt: skip
            timed |= zip(batch, rows, strict=True)
            longest = max(longest, time.monotonic() - began)
            bar.advance(len(batch))
    profile = replace(profile, tables=tuple(_with_small(t, timed) for t in profile.tables))
    found = {d.called(interval_ms): _table(profile, d, interval_ms, timed) for d in deployments}
    for deployment, table in found.items():
        if table.measured < MIN_NETWORKS:
            raise UserError(
                f"only {table.measured} of {len(timed)} networks could be called {calls} with {deployment.name} on "
                f"{site.name}",
                "give a lower rate, or --calls continuous",
            )
    others = tuple(t for t in profile.spaced if t.deployment not in found)
    replace(profile, spaced=(*others, *found.values())).save(path)
    return DeviceProfile.load(path)  # as whoever goes on later will find it: figures are rounded in the file


def with_patterns(
    profile: DeviceProfile, patterns: Sequence[str], path: Path, progress: Progress, budget_s: float = math.inf
) -> DeviceProfile:
    """`with_calls` for all deployments of this host's profile and several patterns, which share `budget_s`; `path`: the
    profile's own file."""
    deployments = [table.deployment for table in profile.tables]
    intervals = with_pauses(patterns)
    for interval_ms in intervals:
        profile = with_calls(
            profile, deployments, interval_ms, this_host(), path=path, progress=progress, networks=PROFILED_NETWORKS,
            budget_s=budget_s / len(intervals),
        )  # fmt: skip
    return profile


def with_pauses(patterns: Sequence[str]) -> list[float]:
    """Milliseconds from one call to the next of those patterns that have pauses, each once."""
    return [interval_ms for interval_ms in dict.fromkeys(map(interval_ms_of, patterns)) if interval_ms]


def _spread(profile: DeviceProfile, deployments: Sequence[Deployment], interval_ms: float, count: int) -> list[int]:
    """Positions of `count` networks that the profile has in all `deployments`, evenly from the fastest to the slowest
    that surely keeps the rate in each; to the slowest of all where hardly any does."""
    tables = [t for d in deployments if (t := profile.table(d)) is not None]
    latencies = np.array([table.column("latency_ms") for table in tables])
    known = np.flatnonzero(np.isfinite(latencies).all(axis=0))
    keep = known[latencies[:, known].max(axis=0) <= LARGEST_SHARE * interval_ms]
    usable = keep if len(keep) >= LEAST else known
    order = usable[np.argsort(latencies[0][usable], kind="stable")]
    wanted = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    return [int(i) for i in order[wanted]]


def _with_small(table: DeploymentTable, timed: Mapping[int, Sequence[Measurement]]) -> DeploymentTable:
    """The timings without pauses, with those of networks that were not known: as they would have been when the profile
    was made, as much faster as the known ones were that were timed with them."""
    now = {
        place: m
        for place, row in timed.items()
        for m in row
        if m.request.deployment == table.deployment and m.failed is None
    }
    then_ms = {place: table.timings[place].latency_ms for place in now}
    factors = [then_ms[place] / m.p50_ms for place, m in now.items() if math.isfinite(then_ms[place])]
    if not factors:
        return table
    timings = list(table.timings)
    for place, m in now.items():
        if not math.isfinite(then_ms[place]):
            # Without the reference network: it was as fast as usual when the figure was true.
            timings[place] = NetworkTiming(float(np.median(factors)) * m.p50_ms, math.nan, math.nan)
    return replace(table, timings=tuple(timings))


def _outside_in(places: Sequence[int]) -> list[int]:
    """The same, the ends and the middle first, then those between: however few are taken, they span the range."""
    steps = np.linspace(0, max(0, len(places) - 1), LEAST).round().astype(int)
    first = list(dict.fromkeys(places[step] for step in steps if step < len(places)))
    return [*first, *(place for place in places if place not in first)]


def _timed(profile: DeviceProfile, deployments: Sequence[Deployment], interval_ms: float) -> set[int]:
    """Positions of the networks that the profile knows in that pattern in all `deployments`."""
    tables = [profile.table(d.called(interval_ms)) for d in deployments]
    known = [set(np.flatnonzero(np.isfinite(t.column("latency_ms"))).tolist()) if t else set[int]() for t in tables]
    return set.intersection(*known)


def _table(
    profile: DeviceProfile, deployment: Deployment, interval_ms: float, timed: Mapping[int, Sequence[Measurement]]
) -> DeploymentTable:
    """The timings with pauses, as they would have been when the profile was made, beside those that it has."""
    before, known = profile.table(deployment), profile.table(deployment.called(interval_ms))
    assert before is not None
    timings: list[NetworkTiming] = list(known.timings) if known else [FAILED] * len(profile.networks)
    for place, row in timed.items():
        now, spaced = (
            next(m for m in row if m.request.deployment == d) for d in (deployment, deployment.called(interval_ms))
        )
        timing = replace(timing_of(profile.networks[place], spaced), block_ms=())
        then_ms = before.timings[place].latency_ms
        factor = then_ms / now.p50_ms if now.failed is None else math.nan
        if math.isfinite(factor * timing.latency_ms):
            timings[place] = replace(timing, latency_ms=factor * timing.latency_ms)
    return DeploymentTable(deployment.called(interval_ms), tuple(timings))


def with_earlier_calls(
    profile: DeviceProfile, deployments: Sequence[Deployment], interval_ms: float, path: Path
) -> DeviceProfile:
    """The profile itself where it knows calls every `interval_ms`; else with the patterns that `with_calls` saved to
    `path`, if it did for this one."""
    if knows_calls(profile, deployments, interval_ms):
        return profile
    found = cached_profile(path, profile)
    if found is None or found.created != profile.created:
        return profile
    return found if found.networks[: len(profile.networks)] == profile.networks else profile
