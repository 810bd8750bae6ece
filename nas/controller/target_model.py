"""The target as a search uses it: a latency model, corrected by probes or measured afresh where it has to be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nas.controller.budget import Budget
from nas.controller.config import SearchConfig
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.host import usable_threads
from nas.progress import Progress
from nas.runtimes import deployments_here, load_runtime
from nas.targets.latency import Correction, LatencyModel
from nas.targets.profile import DeviceProfile, saved_profile
from nas.targets.profiling import make_profile, measure_networks, networks_to_measure
from nas.targets.registry import LOCAL, load_target, usable_deployments

PROBES = 8
QUICK_SHARE = 0.25
"""Of the budget that may go into profiling a host nothing is known of."""
QUICK_SECONDS_PER_MODEL = 0.1
QUICK_SESSIONS = 2


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A target ready to be searched for."""

    name: str
    is_host: bool
    model: LatencyModel
    notes: tuple[str, ...]


def prepare_target(config: SearchConfig, budget: Budget, progress: Progress) -> TargetModel:
    """Load or make the target's latency model.

    This host without a profile is profiled within a share of the budget, and the profile is kept for later searches.
    A profile of a host that differs in what matters is corrected by probes where it is used for this host. Raises
    `UserError` (also `UnknownNameError`) where the target cannot be used as asked for.
    """
    for runtime in config.runtimes or ():
        load_runtime(runtime)
    threads = config.threads or (usable_threads() if config.target == LOCAL else None)
    target = load_target(config.target, threads)
    here = deployments_here(threads or usable_threads()) if target.is_host else []
    deployments = usable_deployments(target.profile, here, config.runtimes, config.precisions, is_host=target.is_host)
    if threads is not None:
        deployments = [d for d in deployments if d.threads == threads]
    if not deployments:
        known = target.profile.tables if target.profile else ()
        names = ", ".join(sorted({f"{t.deployment.name} with {t.deployment.threads} threads" for t in known})) or "none"
        raise UserError(
            f"target {config.target!r} has no deployment that fits what was asked for", f"it knows: {names}"
        )
    profile, notes = target.profile, list(target.differences if target.is_host else ())
    if profile is None:
        progress.note("nothing is known of this host yet: measuring a quick profile first")
        profile = _quick_profile(deployments, budget, progress, config.seed)
        notes = ["latencies come from a quick profile made in this run; `nas profile local` makes a finer one"]
    elif target.differences and target.is_host:
        progress.note(f"the profile differs from this host ({'; '.join(target.differences)}): correcting it by probes")
        corrections = probe_corrections(profile, deployments, config.seed)
        return TargetModel(config.target, True, LatencyModel(profile, deployments, corrections), tuple(notes))
    if not target.is_host:
        notes = [f"not measured here: this host differs from the target ({'; '.join(target.differences)})"]
    return TargetModel(config.target, target.is_host, LatencyModel(profile, deployments), tuple(notes))


def _quick_profile(deployments: Sequence[Deployment], budget: Budget, progress: Progress, seed: int) -> DeviceProfile:
    return make_profile(
        LOCAL,
        deployments,
        path=saved_profile(LOCAL),
        progress=progress,
        budget_s=QUICK_SHARE * budget.seconds,
        networks=36,
        sessions=QUICK_SESSIONS,
        seconds_per_model=QUICK_SECONDS_PER_MODEL,
        seed=seed,
        description="quick profile made by a search",
    )


def probe_corrections(
    profile: DeviceProfile, deployments: Sequence[Deployment], seed: int, probes: int = PROBES
) -> dict[Deployment, Correction]:
    """Measure a few random networks here and compare them with what the profile predicts."""
    archs = networks_to_measure(("mixed",), probes, seed + 1, None)
    from search_spaces import load_search_space

    space = load_search_space("mixed")
    predicted = LatencyModel(profile, deployments).predict(space, space.choices(archs), profile.num_classes)
    measured = measure_networks(archs, deployments, sessions=QUICK_SESSIONS, seconds_per_model=QUICK_SECONDS_PER_MODEL)
    corrections = {}
    for column, deployment in enumerate(deployments):
        times = np.array([row[column].p50_ms for row in measured])
        ratios = np.log(times / predicted[deployment].mean)[np.isfinite(times)]
        if len(ratios) < probes // 2:
            raise UserError(
                f"{deployment.name} could not be measured here", "leave it out with --runtime or --precision"
            )
        corrections[deployment] = Correction(
            factor=float(np.exp(np.median(ratios))), relative_std=float(np.std(ratios)), probes=len(ratios)
        )
    return corrections
