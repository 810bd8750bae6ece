"""Measuring a profile: random networks of the spaces, exported, deployed and timed in fresh sessions."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.deployment import CPU, Deployment
from nas.errors import UserError
from nas.files.folders import check_writable
from nas.measure.block_times import slot_times_ms
from nas.measure.devices import why_no_energy
from nas.measure.host import fingerprint, threads_here
from nas.measure.measurement import Measurement
from nas.measure.protocol import measure
from nas.measure.site import Measure
from nas.progress import Progress
from nas.runtimes import deployments_here, nothing_runs
from nas.runtimes.devices import require_device
from nas.targets.held_out import held_out_error
from nas.targets.preparing import (
    OUTPUT_SIZE,
    Preparer,
    networks_to_measure,
    prepare_here,
    preparer,
    usual_spaces,
)
from nas.targets.profile import FAILED, DeploymentTable, DeviceProfile, NetworkTiming, saved_profile, set_aside
from nas.targets.registry import material_differences
from nas.tasks import tries_dynamic_int8
from nas.text import duration
from predictors.block_latency import MIN_NETWORKS
from predictors.block_transfer import MIN_WITH_PRIOR
from search_spaces import Architecture, SearchSpace, resolve_space, space_of
from search_spaces.architecture import Option

BATCH_OF_NETWORKS = 4
"""Networks measured together: interleaved in one worker, and the grain at which a budget or an interruption cuts."""
NOISE_SESSIONS = 3
"""Fresh sessions of the first batch, whose disagreement is the noise floor."""
ALONE_UNTIL_S = 30.0
"""Budgets below this end with the first networks, which are then prepared in this process: others import for seconds
what a search needs here anyway."""
SECONDS_PER_MODEL = 0.15
NODE_SECONDS = 0.1


def measure_networks(
    archs: Sequence[Architecture],
    deployments: Sequence[Deployment],
    *,
    sessions: int = 3,
    seconds_per_model: float = 0.3,
    node_seconds: float = 0.0,
    seed: int = 0,
    workers: Preparer | None = None,
    measure: Measure = measure,
) -> list[list[Measurement]]:
    """For each architecture, its measurement in each of `deployments`; all interleaved in the same sessions.

    The networks get random weights from `seed`. `workers` prepare them side by side; without, this process does.
    `measure` may measure on another machine than this one.
    """
    with TemporaryDirectory(prefix="nas-profile-") as temporary:
        prepare = prepare_here if workers is None else workers.prepare
        prepared = prepare(archs, deployments, Path(temporary), seed)
        requests = [request for row in prepared for request in row]
        results = measure(requests, sessions=sessions, seconds_per_model=seconds_per_model, node_seconds=node_seconds)
    width = len(deployments)
    return [results[i * width : (i + 1) * width] for i in range(len(archs))]


def make_profile(
    name: str,
    deployments: Sequence[Deployment],
    *,
    path: Path,
    progress: Progress,
    budget_s: float,
    spaces: Sequence[SearchSpace] | None = None,
    allowed: Mapping[str, Sequence[Option]] | None = None,
    networks: int = 240,
    small: bool = False,
    least: int = MIN_NETWORKS,
    sessions: int = 1,
    noise_sessions: int = NOISE_SESSIONS,
    seed: int = 0,
    description: str = "",
    repeat_s: float = math.inf,
) -> DeviceProfile:
    """Measure random networks until `networks` are done or the budget is spent, saving to `path` after each few.

    `small`: every other one is among the smallest of its space, see `networks_to_measure`. `repeat_s`: seconds for
    measuring disturbed sessions of a few networks again. At least `least` networks are measured whatever the budget;
    fewer than the default are of use only with profiles of other devices as prior.

    An existing profile at `path` of the same name, deployments and an equal host is continued, so that an interrupted
    call is just repeated; its networks of other spaces stay in it. Any other one is set aside. Raises `UserError` if
    the budget did not suffice for a usable profile.
    """
    start = time.monotonic()
    planned = networks_to_measure(spaces or usual_spaces(), networks, seed, allowed, small=small)
    networks = len(planned)
    profile = _started(name, description, deployments, path, sessions, planned, progress)
    names = {arch.space for arch in planned}
    done = sum(arch.space in names for arch in profile.networks)
    # Only what is left: networks of an earlier call took no time of this one, and would make it look fast.
    with progress.stage("measuring networks", total=max(0, networks - done)) as bar, preparer() as workers:
        longest, failures = 0.0, dict[Deployment, str]()
        while done < networks and (done < least or time.monotonic() - start + longest < budget_s):
            began = time.monotonic()
            batch = planned[done : done + BATCH_OF_NETWORKS]
            results = measure_networks(
                batch,
                deployments,
                sessions=sessions if profile.networks else max(sessions, noise_sessions),
                seconds_per_model=SECONDS_PER_MODEL,
                node_seconds=NODE_SECONDS,
                seed=len(profile.networks),
                workers=workers if done or budget_s >= ALONE_UNTIL_S else None,
                measure=partial(measure, repeat_s=repeat_s),
            )
            longest = max(longest, time.monotonic() - began)
            failures |= {m.request.deployment: m.failed for row in results for m in row if m.failed is not None}
            profile = extended(profile, batch, results, time.monotonic() - began)
            profile.save(path)
            done += len(batch)
            left_s = budget_s - (time.monotonic() - start)
            # A search gives its profile a part of its budget only: so the note speaks of no budget.
            bar.advance(len(batch), f"ends in {duration(left_s)} at the latest" if 0 < left_s < math.inf else None)
    enough, short = MIN_WITH_PRIOR if least < MIN_NETWORKS else MIN_NETWORKS, []
    for deployment in deployments:
        table = profile.table(deployment)
        if table is None or table.measured < enough:
            short.append(deployment)
        else:
            profile = profile.with_held_out(deployment, held_out_error(profile, deployment))
    profile.save(path)
    if short:
        why = f": {failures[short[0]]}" if short[0] in failures else ""
        raise UserError(
            f"too few networks could be measured with {', '.join(d.name for d in short)}{why}",
            "leave it out with --runtime or --precision, or give a longer --budget",
        )
    return profile


def _started(
    name: str,
    description: str,
    deployments: Sequence[Deployment],
    path: Path,
    sessions: int,
    planned: Sequence[Architecture],
    progress: Progress,
) -> DeviceProfile:
    here = fingerprint()
    require_writable(path)
    if path.exists():
        try:
            old = DeviceProfile.load(path)
        except UserError as error:
            raise UserError(str(error), "move that file away, or give another --out") from error
        spaces = {arch.space for arch in planned}
        own = [arch for arch in old.networks if arch.space in spaces]
        differ = material_differences(here, old.fingerprint)
        same = old.name == name and not differ and {t.deployment for t in old.tables} == set(deployments)
        if same and own[: len(planned)] == planned[: len(own)]:  # more than were asked for now are kept
            return old
        why = differ or [f"it is {old.name!r} with other deployments or networks"]
        progress.note(f"{path} is begun anew ({'; '.join(why)}); what was there is kept as {set_aside(path).name}")
        if same and len(own) < len(old.networks):
            return old.without_spaces(spaces)
    return DeviceProfile(
        name=name,
        description=description,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=here,
        networks=(),
        output_size=OUTPUT_SIZE,
        tables=tuple(DeploymentTable(d) for d in deployments),
        sessions=sessions,
        energy_not_measured=_why_no_energy(deployments),
    )


def _why_no_energy(deployments: Sequence[Deployment]) -> str | None:
    """Reason why some of the devices' energy is not measured; None where all is."""
    devices = dict.fromkeys(d.device for d in deployments)
    reasons = [f"{device}: {why}" if device != CPU else why for device in devices if (why := why_no_energy(device))]
    return "; ".join(reasons) or None


def require_writable(path: Path) -> None:
    """Raises `UserError` now rather than after minutes of measuring."""
    check_writable(path.parent)
    if path.is_dir():
        raise UserError(f"cannot write the profile {path}: it is a folder", "give a file as --out")


def extended(
    profile: DeviceProfile, archs: Sequence[Architecture], results: Sequence[Sequence[Measurement]], seconds: float
) -> DeviceProfile:
    """The profile with the next networks and their measurements, those of one network a row.

    In a deployment that they were not measured in they count as failed. `seconds`: how long all that took.
    """

    def longer(table: DeploymentTable) -> DeploymentTable:
        # Results come in the order of the deployments asked for; find each by value, as tables may be reordered.
        column = [next((m for m in row if m.request.deployment == table.deployment), None) for row in results]
        timings = [FAILED if m is None else timing_of(arch, m) for arch, m in zip(archs, column, strict=True)]
        return table.extended(timings, seconds / len(profile.tables))

    return replace(
        profile,
        networks=(*profile.networks, *archs),
        tables=tuple(map(longer, profile.tables)),
        spaced=tuple(map(longer, profile.spaced)),
        disturbed=profile.disturbed + sum(m.verdict == "disturbed" for row in results for m in row),
    )


def timing_of(arch: Architecture, measurement: Measurement) -> NetworkTiming:
    """The part of a measurement that a profile keeps. The spread of a single session would say nothing and is NaN."""
    if measurement.failed is not None:
        return FAILED
    return NetworkTiming(
        latency_ms=measurement.p50_ms,
        reference_ms=measurement.reference_p50_ms,
        spread_pct=measurement.between_session_spread_pct if len(measurement.sessions) > 1 else math.nan,
        block_ms=block_times_ms(arch, measurement),
        memory_bytes=float(measurement.memory_bytes),
        energy_mj=measurement.energy_mj,
    )


def block_times_ms(arch: Architecture, measurement: Measurement) -> tuple[float, ...]:
    """The time of each block slot, the mean over the sessions; empty where the runtime could not tell."""
    places = space_of(arch).slot_places(arch)
    if places is None:
        return ()
    sessions = [slot_times_ms(s.nodes, places) for s in measurement.sessions if s.nodes]
    return tuple(float(v) for v in np.mean(sessions, axis=0)) if sessions else ()


def profile_this_host(
    name: str,
    out: Path | None,
    *,
    progress: Progress,
    budget_s: float,
    networks: int,
    threads: Sequence[int] = (),
    batch: int = 1,
    devices: Sequence[str] = (),
    runtimes: Sequence[str] = (),
    precisions: Sequence[str] = (),
    spaces: Sequence[str] = (),
    allowed: Mapping[str, Sequence[Option]] | None = None,
) -> DeviceProfile:
    """`make_profile` for this host, with its usual deployments narrowed down to what was asked for.

    Raises `UserError` for a device that this host lacks, and one that no runtime here can use.
    """
    counts = sorted({threads_here(count) for count in threads or (None,)})
    asked = list(dict.fromkeys(runtimes)) or None
    here = list[Deployment]()
    chosen_spaces = [resolve_space(reference) for reference in spaces] or None
    products = all(tries_dynamic_int8(space.task) for space in chosen_spaces or usual_spaces())
    for device in devices or (CPU,):
        require_device(device)
        found = [d for count in counts for d in deployments_here(count, asked, batch, device, products)]
        if not found:
            raise UserError(*nothing_runs(device, asked))
        here += [d for d in found if d not in here]
    unknown = [p for p in precisions if p not in {d.precision for d in here}]
    if unknown:
        raise UserError(
            f"no deployment of this host has precision {unknown[0]}",
            f"it has: {', '.join(sorted({d.name for d in here}))}",
        )
    wanted = [d for d in here if not precisions or d.precision in precisions]
    return make_profile(
        name,
        wanted,
        path=out or saved_profile(name),
        progress=progress,
        budget_s=budget_s,
        networks=networks,
        least=min(networks, MIN_NETWORKS),
        spaces=chosen_spaces,
        allowed=allowed,
    )


def profile_summary(profile: DeviceProfile) -> dict[str, Any]:
    """The profile's quality as one document, a row per deployment."""
    rows = []
    for table in profile.tables:
        error = table.held_out
        rows.append(
            {
                "deployment": table.deployment.name,
                "runs_on": table.deployment.device,
                "threads": table.deployment.threads,
                "batch": table.deployment.batch,
                "n_blocks": table.timed_blocks,
                "n_networks": table.measured,
                "n_heldout": error.networks if error else 0,
                "mape": error.mape if error else None,
                "within_5pct": error.within_5pct if error else None,
                "within_10pct": error.within_10pct if error else None,
                "kendall_tau": error.kendall_tau if error else None,
                "constant_within_10pct": error.constant_within_10pct if error else None,
                "macs_within_10pct": error.macs_within_10pct if error else None,
                "noise_floor_pct": median_or_none(table.column("spread_pct")),
                "memory_mb": median_or_none(table.column("memory_bytes") / 2**20),
                "energy_mj": median_or_none(table.column("energy_mj")),
                "seconds": table.seconds,
            }
        )
    return {
        "profile": profile.name,
        "device": profile.fingerprint.cpu_model,
        "created": profile.created,
        "sessions": profile.sessions,
        "disturbed": profile.disturbed,
        "energy_not_measured": profile.energy_not_measured,
        "deployments": rows,
    }


def median_or_none(values: NDArray[np.float64]) -> float | None:
    """The median of those that are known, None where none is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None
