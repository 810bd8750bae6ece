"""`nas advise`: a network's time by block on this machine, what is odd about it, and what would save some of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nas import __version__
from nas.advice.applying import Applied, applied
from nas.advice.ceiling import ceilings, joined
from nas.advice.comparing import compared, parse_deployment
from nas.advice.graph import Graph
from nas.advice.parts import Part
from nas.advice.placing import Operator, placed, without_profiler
from nas.advice.rules import Evidence, findings
from nas.advice.subject import Subject, described, read_subject
from nas.advice.table import BlockTable, Ceiling, block_table
from nas.advice.timing import Timed, require_timed, timed
from nas.advice.what_if import WhatIf, best, model_for, what_ifs
from nas.bench.bench import chosen_deployments
from nas.bench.models import on_tokens
from nas.bench.preparing import ModelFiles
from nas.deployment import CPU, Deployment
from nas.errors import UserError
from nas.measure.host import HostFingerprint, fingerprint, threads_here
from nas.measure.measurement import DISTURBED, QUIET
from nas.progress import Progress
from nas.runtimes import deployments_here
from nas.targets.registry import LOCAL, Target, load_target
from search_spaces import space_of

SCHEMA = 1
NO_PROMISE = (
    "nothing here says what a change does to the accuracy: a search, or `nas finetune` of the changed network, tells"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseConfig:
    """What is asked."""

    reference: str
    """The network as the user typed it, see `nas.advice.subject`."""
    against: str | None = None
    """Name of a second deployment."""
    runtime: str | None = None
    precision: str | None = None
    """None for both: a bundle's own deployment, for other networks the fastest here."""
    device: str = CPU
    batch: int = 1
    threads: int | None = None
    """None: all that can run at once."""
    resolution: int | None = None
    target: str = LOCAL
    """Whose profile the what-ifs are by; blocks are timed on this machine."""
    apply: int = 0
    """So many of the best changes are built and measured."""
    sessions: int = 3
    command: str = "nas advise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """One deployment of the network, judged."""

    timed: Timed
    """As it was measured."""
    table: BlockTable
    ceiling: Ceiling


def run_advise(config: AdviseConfig, progress: Progress) -> dict[str, Any]:
    """The document of an advice; see docs/advise.md.

    Raises:
        UserError: no such network, target or deployment; nothing that can be told apart; `apply` where there are no
            what-ifs.
    """
    against = None if config.against is None else parse_deployment(config.against)
    threads = threads_here(config.threads)
    with TemporaryDirectory(prefix="nas-advise-") as place:
        folder = Path(place)
        subject = read_subject(config.reference, config.resolution, folder)
        asked = _deployments(config, subject, threads)
        other = None if against is None else _one(config, subject, threads, *against)
        target = load_target(config.target, threads)
        files = ModelFiles(subject.model, folder / "files")
        graph, parts = described(subject, files, config.batch)
        with progress.stage("timing operators"):
            found = timed(files, list(dict.fromkeys([*asked, *([other] if other else [])])), config.sessions)
        main = _fastest([t for t in found if t.deployment in asked])
        second = next((require_timed(t) for t in found if t.deployment == other), None)
        with progress.stage("measuring the machine's ceiling"):
            tables = judged([t for t in (main, second) if t is not None], graph, parts, folder)
        host = fingerprint()
        seen = Evidence(
            graph=graph,
            parts=parts,
            operators=tables[0].table.operators,
            precision=main.deployment.computes_in,
            ceiling=tables[0].ceiling,
            isa=host.isa,
        )
        with progress.stage("predicting changes"):
            changes, why_none = _what_ifs(subject, target, main)
        tried = None
        if config.apply:
            with progress.stage("measuring changes"):
                tried = _applied(config, subject, main.deployment, changes, why_none, folder)
            known = {change.architecture: change for change in tried.changes}
            changes = [known.get(change.architecture, change) for change in changes]
    return {
        **_head(config, subject, host, threads),
        **_deployment_document(tables[0]),
        "findings": [finding.to_json() for finding in findings(seen)],
        "against": _against_document(tables) if len(tables) > 1 else None,
        "what_if": [change.to_json() for change in changes],
        "what_if_profile": None if why_none else _profile_words(target),
        "no_what_if": why_none,
        "applied_before_ms": None if tried is None else tried.before_ms,
        "applied_verdict": None if tried is None else _verdict(tried.disturbed),
        "notes": [NO_PROMISE],
    }


def _deployments(config: AdviseConfig, subject: Subject, threads: int) -> list[Deployment]:
    """Those that the blocks may be timed in: the fastest of them counts."""
    runtime, precision = config.runtime, config.precision
    if runtime is None and precision is None and subject.own is not None and config.device == CPU:
        runtime, precision = subject.own
    chosen = chosen_deployments(
        threads, None if runtime is None else [runtime], None if precision is None else [precision], [config.device],
        dynamic_int8=on_tokens([subject.model]),
    )  # fmt: skip
    return [replace(d, batch=config.batch) for d in chosen]


def _one(config: AdviseConfig, subject: Subject, threads: int, runtime: str, precision: str, device: str) -> Deployment:
    (found, *_) = chosen_deployments(threads, [runtime], [precision], [device], dynamic_int8=on_tokens([subject.model]))
    return replace(found, batch=config.batch)


def _fastest(found: Sequence[Timed]) -> Timed:
    """Raises `UserError` where none was measured."""
    measured = [t for t in found if t.failed is None]
    return min(measured, key=lambda t: t.p50_ms) if measured else require_timed(found[0])


def judged(found: Sequence[Timed], graph: Graph, parts: Sequence[Part], folder: Path) -> list[Advised]:
    """The table of each deployment, against ceilings that are measured for all of them at once."""
    raw = [placed(one.nodes, graph, parts) for one in found]
    compared_with = [
        _like(one.deployment, operators) if one.deployment.device == CPU else []
        for one, operators in zip(found, raw, strict=True)
    ]
    known = ceilings([d for own in compared_with for d in own], folder / "ceiling")
    tables = []
    for one, before, own in zip(found, raw, compared_with, strict=True):
        ceiling = joined([known[d] for d in own])
        operators = placed(without_profiler(one.nodes, ceiling.profiler_ms), graph, parts)
        added_ms = sum(o.ms for o in before) - sum(o.ms for o in operators)
        table = block_table(operators, parts, ceiling, one.p50_ms, one.deployment.computes_in, added_ms)
        tables.append(Advised(timed=one, table=table, ceiling=ceiling))
    return tables


def _like(deployment: Deployment, operators: Sequence[Operator]) -> list[Deployment]:
    """The deployment itself (for dynamic int8 that of int8, whose products are the same), then the one of the same
    runtime for each other precision that a product ran in: int8 networks also have others."""
    own = deployment.computes_in
    precisions = {own, *(o.precision for o in operators if o.macs)}
    here = deployments_here(deployment.threads, [deployment.runtime])
    return sorted((d for d in here if d.precision in precisions), key=lambda d: d.precision != own)


def _what_ifs(subject: Subject, target: Target, main: Timed) -> tuple[list[WhatIf], str | None]:
    """Changes and what they would save, or why there are none."""
    arch = subject.architecture
    if arch is None:
        return [], f"{subject.name} is of no search space, so it has no neighbours: findings alone"
    space = space_of(arch)
    try:
        model = model_for(target, main.deployment)
        predicted = model.predict(space, space.choices([arch]), subject.size)[main.deployment]
        scale = main.p50_ms / float(predicted.mean[0]) if target.is_host else 1.0
        return what_ifs(model, space, arch, subject.size, scale), None
    except UserError as error:
        return [], f"{error} ({error.hint})" if error.hint else str(error)


def _applied(
    config: AdviseConfig, subject: Subject, deployment: Deployment, changes: list[WhatIf], why_none: str | None,
    folder: Path,
) -> Applied:  # fmt: skip
    chosen = best(changes, config.apply)
    if why_none is not None or not chosen or subject.architecture is None:
        reason = why_none or "no change is predicted to save time"
        raise UserError(f"there is nothing to apply: {reason}", "leave out --apply")
    return applied(subject.architecture, chosen, deployment, subject.size, folder, config.sessions)


def _verdict(disturbed: bool) -> str:
    return DISTURBED if disturbed else QUIET


def _head(config: AdviseConfig, subject: Subject, host: HostFingerprint, threads: int) -> dict[str, Any]:
    spec = subject.model.input
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": host.cpu_model,
        "fingerprint": host.to_json(),
        "threads": threads,
        "sessions": config.sessions,
        "model": subject.name,
        "input": {"shape": list(spec.shape), "dtype": spec.dtype, "values": spec.values},
        "architecture": None if subject.architecture is None else subject.architecture.key,
    }


def _deployment_document(advised: Advised) -> dict[str, Any]:
    table, deployment, ceiling = advised.table, advised.timed.deployment, advised.ceiling
    return {
        "deployment": {
            "runtime": deployment.runtime,
            "precision": deployment.precision,
            "threads": deployment.threads,
            "batch": deployment.batch,
            "runs_on": deployment.device,
        },
        "p50_ms": table.p50_ms,
        "verdict": _verdict(advised.timed.disturbed),
        "blocks": [row.to_json() for row in table.rows],
        "blocks_ms": table.blocks_ms,
        "sum_over_p50": table.sum_over_p50,
        "outside_ms": table.outside_ms,
        "unassigned_ms": table.unassigned_ms,
        "profiler_overhead_pct": table.profiler_overhead_pct,
        "ceiling": {
            "gmacs_per_s": dict(ceiling.gmacs_per_s),
            "gb_per_s": ceiling.gb_per_s if math.isfinite(ceiling.gb_per_s) else None,
            "profiler_ms_per_operator": ceiling.profiler_ms,
        },
    }


def _against_document(both: Sequence[Advised]) -> dict[str, Any]:
    first, second = both
    return {
        **_deployment_document(second),
        "rows": [row.to_json() for row in compared(first.table, second.table)],
    }


def _profile_words(target: Target) -> str:
    """Whose profile it is, for people."""
    assert target.profile is not None
    name = target.profile.name
    of = f"another machine ({'; '.join(target.differences)})" if target.differences else "this machine or an equal one"
    return f"profile {name!r} of {of}" + (
        ", scaled to the latency measured here" if target.is_host else ": what it says was not measured here"
    )
