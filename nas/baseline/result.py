"""The result of a derivation: the document that every run has, the table of networks, the page, and the bundle."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nas import __version__
from nas.baseline.outcome import Evidence
from nas.baseline.shortlist import Proposal
from nas.baseline.times import UnitTimes, mean_error
from nas.bundles.bundle import Claims, complete_bundle, deliver_files
from nas.controller.results.result import SCHEMA, first_of, input_label, latencies
from nas.controller.runs.run_folder import write_candidates
from nas.data_options import DataSource
from nas.deploy.tried import Deployed, TriedDeployment
from nas.files.writing import write_json
from nas.limits import LatencyLimit
from nas.measure.devices import why_no_energy
from nas.networks.derived import Form, source_key
from nas.networks.options import KEEP
from nas.tasks import task_of


def write_evidence(e: Evidence) -> dict[str, Any]:
    """Write everything into the run's folder, `result.json` last, and return that document."""
    import pandas as pd

    from nas.report.html import write_report

    deployed = deliver_files(e.delivered.deployed, e.folder.winner(1))
    document = result_document(e, deployed)
    _write_bundle(e, deployed, document)
    rows = candidate_rows(e)
    write_candidates(e.folder, rows)
    write_report(document, pd.DataFrame(rows), e.folder.report)
    write_json(e.folder.result, document)
    return document


def result_document(e: Evidence, deployed: Deployed) -> dict[str, Any]:
    """The document of `result.json`, with the keys that the result of any search has, and `baseline`."""
    config, data = e.config, e.teacher.data
    made = len(e.shortlist.proposals) if e.shortlist else 0
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_dir": str(e.folder.path),
        "task": config.task,
        "metric": task_of(data).metric_of(data),
        "target": config.target,
        "device": e.site.fingerprint.cpu_model,
        "measured_on": e.site.to_json(),
        "objective": "accuracy",
        "limits": e.limits.to_json(),
        "limits_text": e.limits.text,
        "limit_ms": e.limits.given.get(LatencyLimit.name),
        "feasible": True,
        "space": f"units of {config.baseline}",
        "space_size": sum(math.prod(len(named) for named in offer.macs) for offer in e.offers),
        "restricted_to": {},
        "seed": config.seed,
        "data": {
            "name": data.name,
            "classes": len(data.classes),
            "examples": task_of(data).examples,
            "train": len(data.train),
            "val": len(data.val),
            "test": len(data.test),
        },
        "recipe": {"short_s": None, "final_epochs": e.delivered.epochs, "precision": "fp32"},
        "budget_s": config.seconds,
        "max_trials": None,
        "estimate_s": {},
        "seconds": dict(e.account),
        "cost_usd": None,
        "interrupted": False,
        "candidates_scored": made,
        "candidates_evaluated": made,
        "feasibility": [_feasible(e, tables) for tables in _by_deployment(e.tables)],
        "estimator": {
            "asked": "assembled",
            "name": "assembled",
            "why": "networks are made of parts that were trained already",
            "unit": "accuracy",
            "interval_level": 0.9,
            "prepared_s": e.account.get("library", 0.0),
            "evaluated_by": [{"estimator": "assembled", "candidates": made, "median_s": _each_s(e, made)}] * (made > 0),
        },
        "predictor": [_predictor(tables) for tables in _by_deployment(e.tables)],
        "baseline": baseline_document(e),
        "best": [_winner(e, deployed)],
        "baselines": [_untouched(e, t) for t in e.untouched.tried if _is_shown(e, t)],
        "floors": [],
        "agreement": {},
        "notes": [*data.notes, *e.notes],
        "pictures": [],
    }


def baseline_document(e: Evidence) -> dict[str, Any]:
    """The baseline, what its units may become, and what was tried of that."""
    reference, solutions = e.teacher.reference, e.shortlist.proposals if e.shortlist else ()
    delivered = e.delivered.proposal
    return {
        "reference": reference.text,
        "weights": reference.weights,
        "sha256": reference.sha256,
        "accuracy": {"torch": e.teacher.accuracy, "test": first_of(e.untouched_test)},
        "latency_ms": {t.name: t.p50_ms for t in e.untouched.tried if t.measurement and t.measurement.failed is None},
        "deployments": [t.to_json() for t in e.untouched.tried],
        "beside_ms": e.baseline_ms,
        "max_loss": e.config.max_loss,
        "asked_speedup": e.config.speedup,
        "teacher_epochs": dict(e.teacher_epochs),
        **_form(e, delivered.form),
        "units": [
            {
                "name": unit.name,
                "input": list(unit.input_shape[1:]),
                "output": list(unit.output_shape[1:]),
                "macs": unit.macs,
                "params": unit.params,
                "became": delivered.options[i] if delivered.options else KEEP,
                "options": [
                    {
                        "option": name,
                        **_form(e, offer.form),
                        "loss": loss,
                        "ms": {
                            t.deployment.name: _finite(t.unit_ms[i].get(name)) for t in e.tables if t.form == offer.form
                        },
                    }
                    for offer in e.offers
                    if offer.form.resolution is None or offer.form == delivered.form
                    for name, loss in (offer.losses[i].items() if offer.losses else ())
                ],
            }
            for i, unit in enumerate(e.units)
        ],
        "solutions": [
            {
                **{name: value for name, value in s.to_json().items() if name != "form"},
                **_form(e, s.form),
                "delivered": (s.form, s.options) == (delivered.form, delivered.options),
            }
            for s in solutions
        ],
    }


def _form(e: Evidence, form: Form) -> dict[str, Any]:
    own = e.teacher.description.signature
    signature = replace(own, input=form.input(own.input))
    return {"width": form.width, "input": input_label(e.teacher.data, signature)}


def candidate_rows(e: Evidence) -> list[dict[str, Any]]:
    """One row for each network that was assembled, as the table of any search has it."""
    from nas.controller.results.candidates import mark_pareto

    origin = e.teacher.description
    proposals = e.shortlist.proposals if e.shortlist else (e.delivered.proposal,)
    rows = []
    for p in proposals:
        latency_ms = p.measured_ms if p.measured_ms is not None else p.predicted_ms
        description = origin.derived(p.options, p.form)
        rows.append(
            {
                "key": source_key(description.source),
                "trial": -1,
                "origin": "search" if p.origin == "exact" else "anchor",
                "predicted_latency_ms": latency_ms,
                "predicted_std_ms": math.nan,
                "deployment": p.deployment,
                "estimator": "assembled",
                "estimate": p.accuracy,
                "estimate_low": math.nan,
                "estimate_high": math.nan,
                "estimate_s": math.nan,
                "accuracy_estimate": p.accuracy,
                "accuracy_std": math.nan,
                "accuracy_short": math.nan,
                "accuracy_trained": e.delivered.trained_accuracy if p is e.delivered.proposal else math.nan,
                "macs": _sum(e.offer(p).macs, p.options),
                "params": _sum(e.offer(p).params, p.options),
                "input": input_label(e.teacher.data, description.signature),
                "pareto": False,
                "state": "evaluated",
                "reason": p.origin,
            }
        )
    mark_pareto(rows)
    return rows


def _sum(costs: Sequence[Mapping[str, int]], options: Sequence[str]) -> int:
    """Of the options, or of the baseline where there are none."""
    return sum(named[name] for named, name in zip(costs, options or [KEEP] * len(costs), strict=True))


def _winner(e: Evidence, deployed: Deployed) -> dict[str, Any]:
    found, chosen = e.delivered, deployed.chosen
    assert chosen is not None
    assert chosen.path is not None
    measured = chosen.measurement
    assert measured is not None
    options = found.proposal.options
    folder, p50_ms = e.folder.path, chosen.p50_ms
    return {
        "rank": 1,
        "key": source_key(found.description.source),
        "architecture": found.description.to_json(),
        "runtime": chosen.deployment.runtime,
        "precision": chosen.deployment.precision,
        "threads": chosen.deployment.threads,
        "batch": chosen.deployment.batch,
        "runs_on": chosen.deployment.device,
        "calls": chosen.deployment.calls,
        "limit_on": chosen.deployment.covers,
        "pipeline": chosen.pipeline_ms,
        "input": input_label(e.teacher.data, found.description.signature),
        "epochs": found.epochs,
        "weights": "full training" if found.epochs else "the baseline's",
        "mirrored_views": chosen.mirrored,
        "predicted_latency_ms": found.proposal.predicted_ms,
        "predicted_std_ms": _error(e, found.proposal) * found.proposal.predicted_ms,
        "measured_latency_ms": latencies(measured),
        "latency_by_calls_ms": chosen.p50_by_calls_ms,
        "judged_ms": e.limits.worst_ms(measured),
        "session_p50_ms": [s.p50_ms for s in measured.sessions],
        "verdict": measured.verdict,
        "measured": True,
        "machine": measured.machine,
        "within_limit": True,
        "margin_pct": 100 * (1 - e.limits.worst_ms(measured) / e.limit_ms),
        "images_per_s": 1000 * chosen.deployment.batch / p50_ms,
        "memory_bytes": measured.memory_bytes,
        "energy_mj": measured.energy_mj if math.isfinite(measured.energy_mj) else None,
        "energy_not_measured": why_no_energy(),
        "size_bytes": chosen.size_bytes,
        "estimate": {
            "estimator": "assembled",
            "value": found.proposal.accuracy,
            "unit": "accuracy",
            "interval": None,
            "seconds": 0.0,
        },
        "accuracy": {
            "estimate": found.proposal.accuracy,
            "estimate_std": None,
            "short": None,
            "trained": found.trained_accuracy,
            "deployed": chosen.accuracy,
            "test": first_of(found.test),
        },
        "test_figures": dict(found.test) if found.test else None,
        "macs": _sum(e.offer(found.proposal).macs, options),
        "params": _sum(e.offer(found.proposal).params, options),
        "onnx": str(deployed.onnx.relative_to(folder)),
        "model": str(chosen.path.relative_to(folder)),
        "receipt": str(deployed.onnx.with_name("receipt.json").relative_to(folder)),
        "parity": deployed.parity.to_json() if deployed.parity else None,
        "deployments": [t.to_json() for t in deployed.tried],
        "postprocess_ms": None,
        "speedup": e.speedup,
        "speedup_in_deployment": e.same_speedup,
        "loss": {
            "validation": {**found.loss.to_json(), "verdict": found.verdict},
            "test": found.test_loss.to_json() if found.test_loss else None,
        },
    }


def _is_shown(e: Evidence, t: TriedDeployment) -> bool:
    return t.measurement is not None and (not t.fewer_threads or t is e.own)


def _untouched(e: Evidence, t: TriedDeployment) -> dict[str, Any]:
    """The baseline as it is, in one deployment, as a row beside the winner."""
    is_own = t is e.own
    return {
        "name": f"untouched, {t.deployment.precision}{f', {t.deployment.threads} threads' * t.fewer_threads}",
        "kind": "untouched",
        "runtime": t.deployment.runtime,
        "precision": t.deployment.precision,
        "runs_on": t.deployment.device,
        "input": input_label(e.teacher.data, e.teacher.description.signature),
        "measured_latency_ms": latencies(t.measurement),
        "machine": t.measurement.machine if t.measurement else None,
        "judged_ms": e.limits.judged_ms(t.measurement),
        "within_limit": t.measurement is not None and t.measurement.keeps(e.limit_ms),
        "accuracy": {
            "trained": e.teacher.accuracy,
            "deployed": t.accuracy,
            "test": first_of(e.untouched_test) if is_own else None,
        },
        "test_figures": dict(e.untouched_test) if e.untouched_test and is_own else None,
        "macs": _sum(e.offers[0].macs, ()),
        "params": _sum(e.offers[0].params, ()),
        "note": "",
    }


def _by_deployment(tables: Sequence[UnitTimes]) -> list[list[UnitTimes]]:
    """The tables of each deployment, one for each form, the baseline's own first."""
    found: dict[str, list[UnitTimes]] = {}
    for table in tables:
        found.setdefault(table.deployment.name, []).append(table)
    return list(found.values())


def _feasible(e: Evidence, tables: Sequence[UnitTimes]) -> dict[str, Any]:
    known = [p.predicted_ms for p in (e.shortlist.proposals if e.shortlist else ())] or [math.nan]
    fastest_ms = min(t.predicted_ms(t.fastest) for t in tables)
    return {
        "deployment": tables[0].deployment.name,
        "min_ms": fastest_ms,
        "median_ms": sorted(known)[len(known) // 2],
        "max_ms": max(t.predicted_ms([KEEP] * len(t.unit_ms)) for t in tables),
        "satisfiable": fastest_ms <= e.limit_ms,
    }


def _predictor(tables: Sequence[UnitTimes]) -> dict[str, Any]:
    return {
        "deployment": tables[0].deployment.name,
        "n_networks": sum(len(t.timed) for t in tables),
        "n_heldout": sum(len(t.mixed) for t in tables),
        "mape": _finite(mean_error(tables)),
        "within_10pct": None,
        "corrected_by": None,
    }


def _error(e: Evidence, proposal: Proposal) -> float:
    """Mean relative error of the tables of the proposal's deployment; 0 where there is none."""
    error = mean_error([t for t in e.tables if t.deployment.name == proposal.deployment])
    return error if math.isfinite(error) else 0.0


def _each_s(e: Evidence, made: int) -> float:
    return e.account.get("shortlist", 0.0) / max(1, made)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _write_bundle(e: Evidence, deployed: Deployed, document: Mapping[str, Any]) -> None:
    """Complete the winner's folder, which holds its model files, with everything else a bundle has."""
    (best,) = document["best"]
    write_json(e.folder.winner(1) / "architecture.json", best["architecture"])
    told = ("speedup", "speedup_in_deployment", "loss", "macs", "params", "epochs")
    known = {
        key: document["baseline"][key]
        for key in ("reference", "weights", "sha256", "accuracy", "latency_ms", "beside_ms")
    }
    claims = Claims(
        command=e.config.command,
        source=f"{e.folder.path}#1",
        target=e.config.target,
        data=DataSource(source=e.config.data, seed=e.config.seed, options=e.config.data_options),
        max_drop=e.config.max_drop,
        limits=e.limits.to_json(),
        limits_text=e.limits.text,
        within_limit=True,
        margin_pct=best["margin_pct"],
        torch_accuracy=e.delivered.trained_accuracy,
        test_accuracy=best["accuracy"]["test"],
        measured_on=e.site.fingerprint,
        more={"baseline": {**known, **{key: best[key] for key in told}}},
    )
    complete_bundle(e.folder.winner(1), deployed, e.teacher.data, claims)
