"""Record of the facts that a search learned about its target at the start, kept in the run's folder: a continued search
must not learn them again, differently, and then propose other candidates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nas.controller.config import SearchConfig
from nas.controller.prediction.edge import EDGE, TIGHT
from nas.controller.prediction.filling import FILLED, on_calls_alone
from nas.controller.prediction.probes import DeploymentFiles, FileModel
from nas.controller.prediction.target_model import Designs, TargetModel
from nas.controller.runs.records import same_site
from nas.deployment import ALONE, Deployment
from nas.errors import UnknownNameError, UserError
from nas.executors.ray_cluster import device_resource
from nas.files.writing import write_json
from nas.measure.site import Site, this_host
from nas.targets.calling import with_earlier_calls
from nas.targets.latency import Checked, Correction, LatencyModel
from nas.targets.priors import prior_profiles
from nas.targets.registry import load_target
from search_spaces import TensorSpec

CALLS = "calls.json"


def check_target(path: Path, config: SearchConfig, device: Site | None) -> None:
    """Raises `UserError` where no target has the name, or where an earlier process of the run could measure on it and
    this one cannot: limits that were kept would only be predicted."""
    if device is not None:
        return
    recorded = json.loads(path.read_text()) if path.exists() else {}
    measured = recorded.get("measured_on") is not None
    try:
        here = load_target(config.target).is_host
    except UnknownNameError as error:
        if not measured and config.ray is None:
            raise
        hint = f"{error.hint}, or start its machine with --resources='{{\"{device_resource(config.target)}\": 1}}'"
        if not measured:
            raise UserError(f"{error}, and no machine of the Ray cluster is one", hint) from error
        here = False
    if measured and not here:
        raise UserError(
            f"{path.parent} was measured on target {config.target!r}, which is not at hand now",
            "give the --ray of the cluster that it is part of, or go on where the run was begun",
        )


def write_target(path: Path, target: TargetModel, files: FileModel) -> None:
    """Write the record, and beside it the profile where it knows calls with pauses: other searches add networks to the
    one in the cache."""
    model = target.model
    if any(d.interval_ms for d in model.deployments):
        model.profile.save(path.with_name(CALLS))
    write_json(
        path,
        {
            "profile": _identity(target),
            "measured_on": target.site.fingerprint.to_json() if target.site else None,
            "notes": list(target.notes),
            "designs": None
            if target.designs is None
            else {"limit_ms": target.designs.limit_ms, "choices": [list(a.choices) for a in target.designs.archs]},
            "deployments": [
                {
                    "deployment": asdict(d),
                    "correction": asdict(model.corrections[d.continuous])
                    if d.continuous in model.corrections
                    else None,
                    "files": asdict(files.known[d]) if d in files.known else None,
                    "checked": asdict(model.checks[d]) if d in model.checks else None,
                }
                for d in (deployment.covering(ALONE) for deployment in model.deployments)
            ],
            "processing_ms": [{"input": i.to_json(), "ms": ms} for i, ms in model.processing_ms.items()],
        },
    )


def read_target(path: Path, config: SearchConfig, device: Site | None = None) -> tuple[TargetModel, FileModel] | None:
    """The models that `write_target` wrote, if the profile and the machine that measures are still the same; else
    None."""
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text())
    deployments = [Deployment(**entry["deployment"]) for entry in document["deployments"]]
    task = config.search_space.task
    target = load_target(config.target, deployments[0].threads, device.fingerprint if device else None, task)
    site = device or (this_host() if target.is_host else None)
    if target.profile is None or not same_site(document.get("measured_on"), site):
        return None
    profile = target.profile
    if config.interval_ms:
        continuous = [d.continuous for d in deployments]
        profile = with_earlier_calls(profile, continuous, config.interval_ms, path.with_name(CALLS))
    if any(profile.table(d) is None for d in deployments):  # measured again since, with another batch, say
        return None
    by_pattern = _by_deployment(document, "correction", lambda entry: Correction(**entry))
    corrections = {deployment.continuous: correction for deployment, correction in by_pattern.items()}
    files = _by_deployment(
        document, "files", lambda entry: DeploymentFiles(**{**entry, "memory": tuple(entry["memory"] or ()) or None})
    )
    model = LatencyModel(profile, deployments, corrections, prior_profiles(profile, config.search_space))
    checks = _by_deployment(document, "checked", lambda entry: Checked(**entry))
    near = {d: c for d, c in checks.items() if c.limit_ms == config.limits.call_limit_ms(d.batch)}
    model = model.checked(near)
    around = {TensorSpec.from_json(e["input"]): float(e["ms"]) for e in document.get("processing_ms", ())}
    model = model.around(around) if around else model
    designs = _designs(document, config, deployments)
    notes = [note for note in document["notes"] if near or not note.startswith((EDGE, TIGHT))]
    notes = [note for note in notes if designs or not note.startswith(FILLED)]
    known = TargetModel(config.target, site, model, tuple(notes), designs)
    return (known, FileModel(files)) if _identity(known) == document["profile"] else None


def _designs(document: dict[str, Any], config: SearchConfig, deployments: Sequence[Deployment]) -> Designs | None:
    """What was recorded, if it was for the limit that is asked for now."""
    recorded = document.get("designs")
    if config.objective != "accuracy" or not on_calls_alone(config.limits):
        return None
    if recorded is None or recorded["limit_ms"] != config.limits.call_limit_ms(deployments[0].batch):
        return None
    archs = tuple(config.search_space.architecture(choices) for choices in recorded["choices"])
    return Designs(archs, recorded["limit_ms"])


def _identity(target: TargetModel) -> dict[str, Any]:
    profile = target.model.profile
    known = {"name": profile.name, "created": profile.created, "networks": len(profile.networks)}
    spaced = [profile.table(d.covering(ALONE)) for d in target.model.deployments if d.interval_ms]
    timed = [table.measured for table in spaced if table is not None]
    return {**known, "timed with pauses": timed} if timed else known


def _by_deployment(document: dict[str, Any], key: str, make: Any) -> Mapping[Deployment, Any]:
    entries = [e for e in document["deployments"] if e.get(key) is not None]
    return {Deployment(**e["deployment"]): make(e[key]) for e in entries}
