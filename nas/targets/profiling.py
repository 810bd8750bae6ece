"""Measuring a profile: random networks of the spaces, exported, deployed and timed in fresh sessions."""

import math
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment
from nas.errors import UserError
from nas.export.onnx import export_onnx
from nas.measure.host import fingerprint, usable_threads
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.progress import Progress
from nas.runtimes import deployments_here, load_runtime
from nas.targets.latency import held_out_error
from nas.targets.profile import DeploymentTable, DeviceProfile, saved_profile
from predictors.block_latency import MIN_NETWORKS
from search_spaces import Architecture, load_search_space

NUM_CLASSES = 10
BATCH_OF_NETWORKS = 6
"""Networks measured together: interleaved in one worker, and the grain at which a budget or an interruption cuts."""
CALIBRATION_IMAGES = 8
"""Random images for int8 ranges: they fix the scales, and speed does not depend on the scales."""


def networks_to_measure(
    spaces: Sequence[str], count: int, seed: int, resolutions: Sequence[int] | None
) -> list[Architecture]:
    """`count` distinct random architectures, taking turns over the spaces."""
    rng = np.random.default_rng(seed)
    found: dict[str, Architecture] = {}
    loaded = [load_search_space(name) for name in spaces]
    if resolutions:
        loaded = [space.restrict("resolution", resolutions) for space in loaded]
    while len(found) < count:
        space = loaded[len(found) % len(loaded)]
        arch = space.architecture(space.sample(1, rng)[0])
        found.setdefault(arch.key, arch)
    return list(found.values())


def deploy_untrained(
    arch: Architecture, deployments: Sequence[Deployment], folder: Path, seed: int
) -> list[MeasureRequest]:
    """Export a network with random weights but unit-scale activations, and prepare it for each deployment."""
    import torch

    from search_spaces.modules import set_norm_statistics

    space = load_search_space(arch.space)
    resolution = space.resolution(arch)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = space.build(arch, NUM_CLASSES)
        images = torch.randn(CALIBRATION_IMAGES, 3, resolution, resolution)
        set_norm_statistics(network, images)
    model = export_onnx(network, resolution, folder / "model.onnx")
    return prepare_all(model, deployments, folder, images.numpy())


def prepare_all(
    model: Path, deployments: Sequence[Deployment], folder: Path, calibration: NDArray[np.float32]
) -> list[MeasureRequest]:
    """The file of `model` for each deployment."""
    return [
        MeasureRequest(load_runtime(d.runtime).prepare(model, d.precision, folder, calibration), d) for d in deployments
    ]


def measure_networks(
    archs: Sequence[Architecture],
    deployments: Sequence[Deployment],
    *,
    sessions: int = 3,
    seconds_per_model: float = 0.3,
    seed: int = 0,
) -> list[list[Measurement]]:
    """For each architecture, its measurement in each of `deployments`; all interleaved in the same sessions."""
    with TemporaryDirectory(prefix="nas-profile-") as temporary:
        requests: list[MeasureRequest] = []
        for i, arch in enumerate(archs):
            folder = Path(temporary) / str(i)
            folder.mkdir()
            requests += deploy_untrained(arch, deployments, folder, seed + i)
        results = measure(requests, sessions=sessions, seconds_per_model=seconds_per_model)
    width = len(deployments)
    return [results[i * width : (i + 1) * width] for i in range(len(archs))]


def make_profile(
    name: str,
    deployments: Sequence[Deployment],
    *,
    path: Path,
    progress: Progress,
    budget_s: float,
    spaces: Sequence[str] = ("mixed", "mobile", "dense"),
    resolutions: Sequence[int] | None = None,
    networks: int = 240,
    sessions: int = 3,
    seconds_per_model: float = 0.3,
    seed: int = 0,
    description: str = "",
) -> DeviceProfile:
    """Measure random networks until `networks` are done or the budget is spent, saving to `path` after each few.

    An existing profile at `path` with the same name, deployments and fingerprint is continued, so that an interrupted
    call is just repeated. Raises `UserError` if the budget did not suffice for a usable profile.
    """
    start = time.monotonic()
    planned = networks_to_measure(spaces, networks, seed, resolutions)
    profile = _started(name, description, deployments, path, sessions, planned)
    with progress.stage("measuring networks", total=networks) as bar:
        bar.advance(len(profile.networks))
        longest = 0.0
        while len(profile.networks) < networks and (
            len(profile.networks) < MIN_NETWORKS or time.monotonic() - start + longest < budget_s
        ):
            began = time.monotonic()
            batch = planned[len(profile.networks) : len(profile.networks) + BATCH_OF_NETWORKS]
            results = measure_networks(
                batch, deployments, sessions=sessions, seconds_per_model=seconds_per_model, seed=len(profile.networks)
            )
            longest = max(longest, time.monotonic() - began)
            profile = _extended(profile, batch, results, time.monotonic() - began)
            profile.save(path)
            bar.advance(len(batch))
    for deployment in deployments:
        table = profile.table(deployment)
        if table is None or sum(map(math.isfinite, table.latency_ms)) < MIN_NETWORKS:
            raise UserError(
                f"too few networks could be measured with {deployment.name}", "give a longer --budget, or leave it out"
            )
        error = held_out_error(profile, deployment)
        profile = profile.with_table(
            DeploymentTable(table.deployment, table.latency_ms, table.spread_pct, error, table.seconds)
        )
    profile.save(path)
    return profile


def _started(
    name: str,
    description: str,
    deployments: Sequence[Deployment],
    path: Path,
    sessions: int,
    planned: Sequence[Architecture],
) -> DeviceProfile:
    here = fingerprint()
    if path.exists():
        old = DeviceProfile.load(path)
        same = old.name == name and old.fingerprint == here and old.networks == tuple(planned[: len(old.networks)])
        if same and {t.deployment for t in old.tables} == set(deployments):
            return old
        shutil.copyfile(path, path.with_name(path.name + ".old"))
    return DeviceProfile(
        name=name,
        description=description,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=here,
        networks=(),
        num_classes=NUM_CLASSES,
        tables=tuple(DeploymentTable(d, (), (), None, 0.0) for d in deployments),
        sessions=sessions,
    )


def _extended(
    profile: DeviceProfile, archs: Sequence[Architecture], results: Sequence[Sequence[Measurement]], seconds: float
) -> DeviceProfile:
    tables = []
    for table in profile.tables:
        # Results come in the order of the deployments asked for; find each by value, as tables may be reordered.
        column = [next(m for m in row if m.request.deployment == table.deployment) for row in results]
        tables.append(
            DeploymentTable(
                table.deployment,
                (*table.latency_ms, *(math.nan if m.failed else m.p50_ms for m in column)),
                (*table.spread_pct, *(m.between_session_spread_pct for m in column)),
                None,
                table.seconds + seconds / len(profile.tables),
            )
        )
    return DeviceProfile(
        name=profile.name,
        description=profile.description,
        created=profile.created,
        fingerprint=profile.fingerprint,
        networks=(*profile.networks, *archs),
        num_classes=profile.num_classes,
        tables=tuple(tables),
        sessions=profile.sessions,
        disturbed=profile.disturbed + sum(m.verdict == "disturbed" for row in results for m in row),
    )


def profile_this_host(
    name: str,
    out: Path | None,
    *,
    progress: Progress,
    budget_s: float,
    networks: int,
    threads: int | None = None,
    runtimes: Sequence[str] = (),
    precisions: Sequence[str] = (),
    resolutions: Sequence[int] = (),
) -> DeviceProfile:
    """Measure this host as `name`, with every deployment that runs here and was not left out.

    Raises `UserError` where the names leave no deployment.
    """
    here = deployments_here(threads or usable_threads(), runtimes or None)
    wanted = [d for d in here if not precisions or d.precision in precisions]
    if not wanted:
        raise UserError(
            f"no deployment of this host has precision {' or '.join(precisions)}",
            f"it has: {', '.join(d.name for d in here)}",
        )
    return make_profile(
        name,
        wanted,
        path=out or saved_profile(name),
        progress=progress,
        budget_s=budget_s,
        networks=networks,
        resolutions=resolutions or None,
    )


def profile_summary(profile: DeviceProfile) -> dict[str, Any]:
    """The profile's quality as one document, a row per deployment."""
    rows = []
    for table in profile.tables:
        error = table.held_out
        rows.append(
            {
                "deployment": table.deployment.name,
                "threads": table.deployment.threads,
                "n_networks": sum(map(math.isfinite, table.latency_ms)),
                "n_heldout": error.networks if error else 0,
                "mape": error.mape if error else None,
                "within_5pct": error.within_5pct if error else None,
                "within_10pct": error.within_10pct if error else None,
                "kendall_tau": error.kendall_tau if error else None,
                "constant_within_10pct": error.constant_within_10pct if error else None,
                "macs_within_10pct": error.macs_within_10pct if error else None,
                "noise_floor_pct": float(np.nanmedian(table.spread_pct)),
                "seconds": table.seconds,
            }
        )
    return {
        "profile": profile.name,
        "device": profile.fingerprint.cpu_model,
        "created": profile.created,
        "sessions": profile.sessions,
        "disturbed": profile.disturbed,
        "deployments": rows,
    }
