"""Networks of a space whose blocks a device's profile lacks, measured where the device is at hand."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.site import Site
from nas.progress import Progress
from nas.targets.fitting import kinds_of, occurring_kinds
from nas.targets.preparing import networks_to_measure, preparer
from nas.targets.profile import DeploymentTable, DeviceProfile
from nas.targets.profiling import BATCH_OF_NETWORKS, extended, measure_networks
from nas.targets.registry import cached_profile
from search_spaces import Architecture, SearchSpace

NETWORKS = 16
"""Networks of the space that are measured in addition."""
SECONDS = 0.1
"""Of measuring each of them in each deployment, and of its profiler."""


def missing_kinds(profile: DeviceProfile, space: SearchSpace) -> frozenset[str]:
    """Families of the blocks of `space` that no network of the profile has."""
    return occurring_kinds(space, profile.output_size) - kinds_of(profile)


def completed(
    profile: DeviceProfile,
    deployments: Sequence[Deployment],
    space: SearchSpace,
    site: Site,
    *,
    path: Path,
    progress: Progress,
    seed: int,
) -> DeviceProfile:
    """The profile with networks of `space` measured on `site`, saved to `path`; or what an earlier call saved there.

    Args:
        profile: of a host like the site, without some families of the space's blocks.
        deployments: those to measure in; in the others of the profile the new networks count as not measured.
        space: the searched one.
        site: the machine at hand.
        path: a file of the user's cache.
        progress: told of the networks.
        seed: of the networks that are drawn.

    Raises:
        UserError: most of the networks could not be measured.
    """
    earlier = _earlier(path, profile, space)
    if earlier is not None:
        return earlier
    archs = networks_to_measure([space], NETWORKS, seed)
    found = profile
    with progress.stage("measuring networks", len(archs)) as bar, preparer() as workers:
        for start in range(0, len(archs), BATCH_OF_NETWORKS):
            began, batch = time.monotonic(), archs[start : start + BATCH_OF_NETWORKS]
            rows = measure_networks(
                batch, deployments, sessions=1, seconds_per_model=SECONDS, node_seconds=SECONDS, seed=start,
                workers=workers, measure=site.measure,
            )  # fmt: skip
            found = extended(found, batch, rows, time.monotonic() - began)
            bar.advance(len(batch))
    for deployment in deployments:
        if _measured(found, deployment, archs) < len(archs) / 2:
            raise UserError(
                f"networks of space {space.name!r} could not be measured with {deployment.name} on {site.name}",
                "leave it out with --runtime or --precision",
            )
    found.save(path)
    return found


def _earlier(path: Path, profile: DeviceProfile, space: SearchSpace) -> DeviceProfile | None:
    """The profile at `path`, where it is this one with networks of `space`."""
    found = cached_profile(path, profile)
    if found is None or found.networks[: len(profile.networks)] != profile.networks:
        return None
    return None if missing_kinds(found, space) else found


def _measured(profile: DeviceProfile, deployment: Deployment, archs: Sequence[Architecture]) -> int:
    table: DeploymentTable | None = profile.table(deployment)
    assert table is not None
    return int(np.isfinite(table.column("latency_ms")[-len(archs) :]).sum())
