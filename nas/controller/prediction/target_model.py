"""The target as a search uses it: a latency model, scaled, re-calibrated or measured afresh where it has to be."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import planned_s
from nas.controller.prediction.reach import require_within_reach
from nas.deployment import CPU, Deployment, Placement
from nas.errors import UserError
from nas.executors.ray_cluster import device_resource
from nas.measure.host import fingerprint, threads_here, usable_threads
from nas.measure.measurement import MeasureRequest
from nas.measure.reference import reference_model
from nas.measure.site import Site, this_host, undisturbed
from nas.measure.statistics import spread_pct
from nas.progress import Progress, SilentProgress
from nas.runtimes import deployments_here, load_runtime
from nas.runtimes.devices import require_device
from nas.targets.completing import completed, missing_kinds
from nas.targets.fitting import kinds_of, occurring_kinds, table_exponent
from nas.targets.latency import Correction, LatencyModel
from nas.targets.preparing import (
    OUTPUT_SIZE,
    deploy_untrained,
    networks_to_measure,
    new_folder,
    preparer,
    spaces_like,
    usual_spaces,
)
from nas.targets.priors import prior_profiles
from nas.targets.profile import (
    DeploymentTable,
    DeviceProfile,
    quick_profile,
    saved_profile,
    set_aside,
)
from nas.targets.profiling import make_profile, measure_networks, median_or_none, timing_of
from nas.targets.registry import (
    LOCAL,
    bundled_of_others,
    load_target,
    material_differences,
    usable_deployments,
)
from nas.tasks import tries_dynamic_int8
from predictors.block_latency import MIN_NETWORKS
from search_spaces import Architecture, SearchSpace

PROBES = 10
QUICK_SHARE = 0.1
"""Largest share of the budget that profiling an unknown host may take."""
REPEAT_SHARE = 0.5
"""Share of a quick profile's time that repeating the disturbed sessions of a few networks may take."""
CALIBRATION_REPEATS = 0.03
"""The same of each measurement that prepares a search, by its budget: on a busy machine all sessions are disturbed."""
QUICK_NETWORKS = 36
QUICK_LEAST = 4
"""Networks of a quick profile whatever the budget, where a bundled profile of another device can serve as prior."""
QUICK_SECONDS_PER_MODEL = 0.1
SPEED_SESSIONS = 3
SPEED_TOLERANCE = 0.05
"""Fresh sessions of a quiet host differ by less."""


@dataclass(frozen=True, slots=True)
class Designs:
    """Well-known designs that were made to fill a limit on calls, and measured to keep it."""

    archs: tuple[Architecture, ...]
    limit_ms: float


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A target ready to be searched for."""

    name: str
    site: Site | None
    """The machine that networks are measured on; None: nothing is measured, only predicted."""
    model: LatencyModel
    notes: tuple[str, ...]
    designs: Designs | None = None
    """Candidates to begin with in place of the space's well-known designs; None: those."""


def continuous_target(
    config: SearchConfig, budget: Budget, progress: Progress, device: Site | None = None
) -> TargetModel:
    """Load or make the target's latency model, of calls without a pause.

    `device` is another machine that is the target; without, networks are measured here if the target is this host.
    A machine without a profile is profiled within a share of the budget, and the profile is kept for later searches.
    A profile of a host that differs in what matters is the prior for a few networks measured on the machine, or refused
    where the configuration is strict; one of the same host is scaled to its speed of now. Raises `UserError` (also
    `UnknownNameError`) where the target cannot be used as asked for.
    """
    for runtime in config.runtimes or ():
        load_runtime(runtime)
    asked = config.threads or (usable_threads() if config.target == LOCAL else None)
    task = config.search_space.task
    target = load_target(config.target, asked, device.fingerprint if device else None, task)
    site = device or (this_host() if target.is_host else None)
    if site is not None:
        site = undisturbed(site, nullcontext, lambda: CALIBRATION_REPEATS * budget.seconds)
    if site is not None and config.threads is not None:
        site.run(threads_here, config.threads)
    threads = asked or (target.profile.threads if target.profile else (site or this_host()).run(usable_threads))
    batch = target.profile.batch if target.profile else 1
    devices = config.devices or (target.profile.devices if target.profile else (CPU,))
    if site is not None:
        for device_name in config.devices or ():
            site.run(require_device, device_name)
    products = tries_dynamic_int8(task)
    here = (
        [d for name in devices for d in site.run(deployments_here, threads, None, batch, name, products)]
        if site
        else []
    )
    if config.strict and target.profile is not None and target.differences:
        raise UserError(
            f"the profile of target {config.target!r} is of a host that differs: {'; '.join(target.differences)}",
            "measure this one with `nas profile local`, or leave out --strict",
        )
    deployments = usable_deployments(
        target.profile, here, config.runtimes, config.precisions, config.devices, is_host=site is not None
    )
    deployments = [d for d in deployments if d.fits_threads(threads)]
    if not deployments:
        known = target.profile.tables if target.profile else ()
        names = ", ".join(sorted({f"{t.deployment.name} with {t.deployment.threads} threads" for t in known})) or "none"
        raise UserError(
            f"target {config.target!r} has no deployment that fits what was asked for", f"it knows: {names}"
        )
    profile, notes = target.profile, list(target.differences if site else ())
    if profile is None:
        assert site is not None  # only a machine at hand has a target without a profile
        reachable = config.search_space.restricted(config.allowed)
        pauses = bool(config.interval_ms)
        require_within_reach(config.limits, reachable, deployments, site, config.seed, pauses=pauses)
        progress.note(f"nothing is known of {task} on {site.name} yet: measuring a quick profile first")
        profile = _quick_profile(config, site, deployments, budget, progress)
        notes = [
            f"latencies come from a quick profile made in this run; `nas profile {config.target}` makes a finer one"
        ]
    if batch > 1:
        notes.append(
            f"a call has {batch} images, as profile {profile.name!r} was measured: latencies are of all of them"
        )
    if device is not None:
        notes.append(f"latencies were measured on {device.name} ({device.fingerprint.cpu_model})")
    if site and target.differences:
        progress.note(f"the profile differs from {site.name} ({'; '.join(target.differences)}): measuring probes")
        notes.append(f"the profile served as prior for {PROBES} networks measured on {site.name}")
        spaces = [s for s in spaces_like(config.search_space) if not missing_kinds(profile, s)]
        unknown = config.search_space.name not in {s.name for s in spaces}
        model = recalibrated(
            profile, deployments, config.seed, site, QUICK_NETWORKS if unknown else PROBES,
            [config.search_space] if unknown else spaces,
        )  # fmt: skip
        return TargetModel(config.target, site, model, tuple(notes))
    missing = missing_kinds(profile, config.search_space) if site and target.profile is not None else frozenset()
    if site and missing:
        progress.note(f"profile {profile.name!r} never measured blocks of kind {', '.join(sorted(missing))}")
        profile = completed(
            profile, deployments, config.search_space, site,
            path=quick_profile(config.target), progress=progress, seed=config.seed + 1,
        )  # fmt: skip
        notes.append(f"blocks of kind {', '.join(sorted(missing))} were measured on {site.name} for a search")
    corrections: dict[Deployment, Correction] = {}
    if site and target.profile is not None:
        corrections = speed_corrections(profile, deployments, site)
        notes += speed_notes(corrections.values(), site)
    elif not site:
        notes += [f"not measured here: this host differs from the target ({'; '.join(target.differences)})"]
        if config.ray is not None:
            notes.append(f"no machine of the Ray cluster offers the resource {device_resource(config.target)!r}")
    prior = prior_profiles(profile, config.search_space)
    if prior:
        notes.append(f"few networks of this device were measured; {', '.join(p.name for p in prior)} served as prior")
    model = LatencyModel(profile, deployments, corrections, prior)
    return TargetModel(config.target, site, model, tuple(notes))


def _quick_profile(
    config: SearchConfig, site: Site, deployments: Sequence[Deployment], budget: Budget, progress: Progress
) -> DeviceProfile:
    """Made where the target is and kept here."""
    budget_s = QUICK_SHARE * planned_s(budget.seconds)
    path = _place_of_quick_profile(config.target, deployments, site)
    spaces = spaces_like(config.search_space)
    if config.target == LOCAL:
        return make_quick_profile(LOCAL, deployments, path, budget_s, config.seed, progress, spaces)
    with progress.stage(f"measuring networks on {site.name}") as bar:
        profile = site.run(_profile_there, config.target, deployments, budget_s, config.seed, spaces)
        bar.advance(len(profile.networks))
    if path.exists():
        set_aside(path)
    profile.save(path)
    return profile


def _place_of_quick_profile(name: str, deployments: Sequence[Deployment], site: Site) -> Path:
    """The saved profile's place where there is none, or where networks of another task are only added to it. One that
    differs in more, such as the number of threads, took long to measure and stays."""
    saved = saved_profile(name)
    if not saved.exists():
        return saved
    old = DeviceProfile.load(saved)
    same = {t.deployment for t in old.tables} == set(deployments)
    adds = site.here and same and not material_differences(site.fingerprint, old.fingerprint)
    return saved if adds else quick_profile(name)


def _profile_there(
    name: str, deployments: Sequence[Deployment], budget_s: float, seed: int, spaces: Sequence[SearchSpace]
) -> DeviceProfile:
    with TemporaryDirectory(prefix="nas-profile-") as folder:
        path = Path(folder) / "profile.json"
        return make_quick_profile(name, deployments, path, budget_s, seed, SilentProgress(), spaces)


def make_quick_profile(
    name: str, deployments: Sequence[Deployment], path: Path, budget_s: float, seed: int, progress: Progress,
    spaces: Sequence[SearchSpace] | None = None,
) -> DeviceProfile:  # fmt: skip
    """Profile of this host from few networks, half of them small, enough to begin with."""
    spaces = spaces or usual_spaces()
    kinds = frozenset(kind for space in spaces for kind in occurring_kinds(space, OUTPUT_SIZE))
    # Bundled profiles are of processors, which say nothing about a GPU.
    on_cpu = all(d.device == CPU for d in deployments)
    prior = on_cpu and any(kinds <= kinds_of(other) for other in bundled_of_others(fingerprint()))
    return make_profile(
        name,
        deployments,
        path=path,
        progress=progress,
        budget_s=budget_s,
        spaces=spaces,
        networks=QUICK_NETWORKS,
        small=True,
        least=QUICK_LEAST if prior else MIN_NETWORKS,
        noise_sessions=1,
        repeat_s=REPEAT_SHARE * budget_s,
        seed=seed,
        description="quick profile made by a search",
    )


def speed_corrections(
    profile: DeviceProfile, deployments: Sequence[Deployment], site: Site
) -> dict[Deployment, Correction]:
    """Factors by which each device is slower now than while it was profiled, as the reference network shows.

    A shared or throttled host easily runs 20 % slower at one hour than at another, and all networks with it. Empty
    where the reference network cannot be run, and without the deployments for which the profile has no such time.
    """
    speeds = _speeds(deployments, site)
    found = {}
    for deployment in deployments:
        table, now = profile.table(deployment), speeds.get(deployment.placement)
        then = median_or_none(table.column("reference_ms")) if table else None
        if then is None or now is None:
            continue
        assert table is not None  # or nothing was known of then
        found[deployment] = Correction(
            factor=median(now) / then,
            exponent=table_exponent(profile, table),
            relative_std=spread_pct(now) / 100 / SPEED_SESSIONS,
        )
    return found


def _speeds(deployments: Sequence[Deployment], site: Site) -> dict[Placement, list[float]]:
    """Milliseconds of the reference network in each of `SPEED_SESSIONS` sessions, where it could be measured.

    A processor's is a file that ONNX Runtime runs. A GPU's is made by its probe and timed beside every network, so the
    smallest of one space is measured, whose own time does not matter.
    """
    places = sorted({d.placement for d in deployments})
    reference = reference_model()
    with TemporaryDirectory(prefix="nas-speed-") as folder:
        requests = []
        for number, place in enumerate(places):
            if place.device != CPU:
                there = [d for d in deployments if d.placement == place][:1]
                arch = min(usual_spaces()[0].anchors, key=lambda a: a.key)
                requests += deploy_untrained(arch, there, new_folder(Path(folder) / str(number)), seed=0)
            elif reference is not None:
                requests.append(MeasureRequest(reference, Deployment("onnxruntime", "fp32", place.threads)))
        measured = site.measure(requests, sessions=SPEED_SESSIONS, seconds_per_model=0.2) if requests else []
    found = {}
    for request, m in zip(requests, measured, strict=True):
        place = request.deployment.placement
        if m.failed is None:
            cpu = place.device == CPU  # there the network itself is the reference
            found[place] = [s.p50_ms if cpu else s.reference_p50_ms for s in m.sessions]
    return found


def speed_notes(corrections: Iterable[Correction], site: Site) -> list[str]:
    """Notes about a speed that differs by more than measurements do."""
    factors = [c.factor for c in corrections]
    usual = float(np.median(factors)) if factors else 1.0
    if abs(usual - 1) <= SPEED_TOLERANCE:
        return []
    direction = "slower" if usual > 1 else "faster"
    return [
        f"{site.name} is {abs(usual - 1):.0%} {direction} now than while it was profiled: predictions are scaled to now"
    ]


def recalibrated(
    profile: DeviceProfile, deployments: Sequence[Deployment], seed: int, site: Site, probes: int = PROBES,
    spaces: Sequence[SearchSpace] | None = None,
) -> LatencyModel:  # fmt: skip
    """A model of a machine from a few random networks measured on it, with `profile`, of a host like it, as prior.

    Raises `UserError` where most of them could not be measured.
    """
    archs = networks_to_measure(spaces or usual_spaces(), probes, seed + 1, None, small=True)
    with preparer() as workers:
        measured = measure_networks(
            archs,
            deployments,
            sessions=1,
            seconds_per_model=QUICK_SECONDS_PER_MODEL,
            node_seconds=QUICK_SECONDS_PER_MODEL,
            workers=workers,
            measure=site.measure,
        )
    tables = []
    for column, deployment in enumerate(deployments):
        timings = [timing_of(arch, row[column]) for arch, row in zip(archs, measured, strict=True)]
        tables.append(DeploymentTable(deployment, tuple(timings)))
        if tables[-1].measured < len(archs) / 2:
            raise UserError(
                f"{deployment.name} could not be measured on {site.name}", "leave it out with --runtime or --precision"
            )
    here = replace(profile, fingerprint=site.fingerprint, networks=tuple(archs), tables=tuple(tables), sessions=1)
    return LatencyModel(here, deployments, prior=[profile])
