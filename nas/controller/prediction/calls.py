"""The target of a search whose networks are called with pauses, which a profile may lack: then some are timed."""

from dataclasses import replace

from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import planned_s
from nas.controller.prediction.fewer import affordable_deployments, promising
from nas.controller.prediction.reach import require_within_reach, seems_out_of_reach
from nas.controller.prediction.small import small_networks
from nas.controller.prediction.target_model import QUICK_SHARE, TargetModel, continuous_target
from nas.errors import UserError
from nas.measure.site import Site
from nas.progress import Progress
from nas.targets.calling import knows_calls, with_calls, with_earlier_calls
from nas.targets.preparing import OUTPUT_SIZE
from nas.targets.profile import calls_profile


def prepare_target(config: SearchConfig, budget: Budget, progress: Progress, device: Site | None = None) -> TargetModel:
    """Load or make the target's latency model, of calls as the configuration asks for.

    See `continuous_target`. Where the profile lacks the pattern of calls, some of its networks are timed in it; the
    profile with them is kept for later searches. Raises `UserError` where that is not possible.
    """
    found = continuous_target(config, budget, progress, device)
    if not config.interval_ms:
        return found
    if found.site is not None:
        return _timed(found, found.site, config, planned_s(budget.seconds), progress)
    profile = found.model.profile
    if not knows_calls(profile, found.model.deployments, config.interval_ms):
        raise UserError(
            f"profile {profile.name!r} does not know calls at {config.calls}, and {config.target!r} is not at hand",
            f"`nas profile {config.target} --calls {config.calls}` on that device measures them",
        )
    return replace(found, model=found.model.called(profile, config.interval_ms))


def _timed(found: TargetModel, site: Site, config: SearchConfig, budget_s: float, progress: Progress) -> TargetModel:
    """The target with a model of calls with pauses; in a short budget of the most promising deployments
    alone. Where nothing is known of such calls, that cannot be told before all of them are timed."""
    profile, deployments, interval_ms = found.model.profile, found.model.deployments, config.interval_ms
    space, path = config.search_space.restricted(config.allowed), calls_profile(config.target)
    count = affordable_deployments(budget_s)
    earlier = with_earlier_calls(profile, deployments, interval_ms, path)
    known = knows_calls(earlier, deployments, interval_ms)
    if not known and seems_out_of_reach(config.limits, space, found.model, config.seed):
        require_within_reach(config.limits, space, deployments, site, config.seed, pauses=True)
    model, considered = found.model, deployments
    if known and count < len(deployments):
        model = model.called(earlier, interval_ms)
        considered = promising(model, space, OUTPUT_SIZE, config.limits, count)
    timed = with_calls(
        profile, [d.continuous for d in considered], interval_ms, site, path=path, progress=progress,
        budget_s=QUICK_SHARE * budget_s, seed=config.seed,
        small=small_networks(space, found.model, earlier, OUTPUT_SIZE, config.limits),
    )  # fmt: skip
    notes = list(found.notes)
    if timed is not profile:
        notes.append(f"calls at {config.calls} were timed on {site.name} for some networks of the profile")
    if model is found.model or timed != earlier:  # else it is fitted already
        model = found.model.called(timed, interval_ms)
    if not known:
        considered = promising(model, space, OUTPUT_SIZE, config.limits, count)
    if len(considered) < len(deployments):
        names = ", ".join(d.name for d in considered)
        notes.append(
            f"{names} alone were considered, as the most promising of {len(deployments)} deployments: timing all of "
            "them with pauses takes a longer --budget"
        )
        model = model.limited_to(considered)
    return replace(found, model=model, notes=tuple(notes))
