"""The result of a search as one document and one table; pure functions of what happened."""

import math
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from nas import __version__
from nas.controller.evaluators import trains
from nas.controller.finalists import seen_of
from nas.controller.prediction.target_model import TargetModel
from nas.controller.results.candidates import Estimates, costs_of
from nas.controller.results.judged import beaten_finalists, judged_finalist
from nas.controller.results.outcome import Outcome
from nas.controller.values import Evaluated, Finalist
from nas.deploy.tried import Deployed
from nas.deployment import ALONE, CPU
from nas.evaluation.estimate import LEVEL, agreement
from nas.evaluation.estimators import ESTIMATORS
from nas.limits import LatencyLimit
from nas.measure.devices import why_no_energy
from nas.measure.measurement import Measurement
from nas.tasks import TaskData, task_of
from search_spaces import Signature

SCHEMA = 1
FEWEST_COMPARED = 3
"""Finalists without which no order is to be seen."""


def result_document(o: Outcome) -> dict[str, Any]:
    """The document of `result.json` and `--json`: accuracies are fractions (`metric` names them), latencies ms at the
    stated batch."""
    estimates = Estimates(o)
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": o.config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_dir": str(o.folder.path),
        "task": o.config.task,
        "metric": task_of(o.data).metric_of(o.data),
        "target": o.config.target,
        "device": o.target.model.profile.fingerprint.cpu_model,
        "measured_on": o.target.site.to_json() if o.target.site else None,
        "objective": o.config.objective,
        "limits": o.config.limits.to_json(),
        "limits_text": o.config.limits.text,
        "limit_ms": o.config.limits.given.get(LatencyLimit.name),
        "feasible": any(r.satisfiable for r in o.inputs.ranges),
        "space": o.space.name,
        "space_size": o.space.size,
        "decisions": {decision.name: list(decision.options) for decision in o.space.decisions},
        "restricted_to": {name: list(options) for name, options in o.space.restrictions.items()},
        "seed": o.config.seed,
        "data": {
            "name": o.data.name,
            "classes": len(o.data.classes),
            "examples": task_of(o.data).examples,
            "train": len(o.data.train),
            "val": len(o.data.val),
            "test": len(o.data.test),
            "options": o.config.data_options.to_json(),
        },
        "recipe": {
            "short_s": o.short_s if trains(o.estimator.name) else None,
            "final_epochs": o.recipe.epochs,
            "precision": o.recipe.precision,
        },
        "budget_s": o.config.seconds if math.isfinite(o.config.seconds) else None,
        "max_trials": o.config.max_trials,
        "estimate_s": o.estimate,
        "seconds": o.seconds,
        "cost_usd": o.cost_usd,
        "interrupted": o.interrupted,
        "candidates_scored": o.scorer.scored,
        "candidates_evaluated": len(o.evaluated),
        "feasibility": [
            {
                "deployment": r.deployment.name,
                "min_ms": r.min_ms,
                "median_ms": r.median_ms,
                "max_ms": r.max_ms,
                "satisfiable": r.satisfiable,
            }
            for r in o.inputs.ranges
        ],
        "estimator": _estimator(o),
        "predictor": _predictor_quality(o.target),
        "best": [_winner(o, f, rank, estimates) for rank, f in enumerate(o.winners, start=1)],
        "finalists": beaten_finalists(o),
        "baselines": _baselines(o),
        "floors": [floor.to_json() for floor in o.floors],
        "agreement": _agreement(o),
        "notes": [*o.data.notes, *o.target.notes, *o.notes],
    }


def input_label(data: TaskData, signature: Signature) -> str:
    """Name that people give the input of a network: `96 px`."""
    return task_of(data).input_label(signature.input)


def latencies(measurement: Measurement | None) -> dict[str, float] | None:
    """p50, p90 and p99 in ms, or None where nothing was measured."""
    if measurement is None or measurement.failed is not None:
        return None
    return {"p50": measurement.p50_ms, "p90": measurement.p90_ms, "p99": measurement.p99_ms}


def _winner(o: Outcome, f: Finalist, rank: int, estimates: Estimates) -> dict[str, Any]:
    chosen = f.deployed.chosen
    assert chosen is not None
    assert chosen.path is not None
    arch = f.evaluated.arch
    planned = next(d for d in o.target.model.deployments if d.name == chosen.deployment.name)
    predicted = o.scorer.predicted(arch, planned)  # with the target's threads; the chosen one may have fewer
    views = 2 if chosen.mirrored else 1  # predictions are of one
    around_ms = o.target.model.around_ms(o.space, o.space.choices([arch]), planned.batch)
    choices = o.space.choices([arch])
    ((estimate, std),) = estimates.of(choices)
    measured = chosen.measurement
    judged_ms = o.config.limits.worst_ms(measured) if measured else predicted.upper_ms
    folder = o.folder.path
    return {
        "rank": rank,
        "key": arch.key,
        "architecture": o.space.to_json(arch),
        "runtime": chosen.deployment.runtime,
        "precision": chosen.deployment.precision,
        "threads": chosen.deployment.threads,
        "batch": chosen.deployment.batch,
        "runs_on": chosen.deployment.device,
        "calls": chosen.deployment.calls,
        "limit_on": chosen.deployment.covers,
        "pipeline": chosen.pipeline_ms,
        "input": input_label(o.data, f.deployed.description.signature),
        "epochs": f.trained.epochs,
        "weights": "short training" if f.trained.by_short_training else "full training",
        "mirrored_views": chosen.mirrored,
        "predicted_latency_ms": views * (predicted.mean_ms - around_ms) + around_ms,
        "predicted_std_ms": views * predicted.std_ms,
        "measured_latency_ms": latencies(measured),
        "latency_by_calls_ms": chosen.p50_by_calls_ms,
        "judged_ms": judged_ms,
        "session_p50_ms": [s.p50_ms for s in measured.sessions] if measured else [],
        "verdict": measured.verdict if measured else "not measured",
        "measured": measured is not None,
        "machine": measured.machine if measured else None,
        "within_limit": f.within_limit,
        "margin_pct": o.config.limits.margin_pct(
            seen_of(chosen, o.config.limits, None, None if measured else predicted.upper_ms)
        ),
        "images_per_s": f.images_per_s,
        "memory_bytes": measured.memory_bytes if measured else None,
        "energy_mj": measured.energy_mj if measured and math.isfinite(measured.energy_mj) else None,
        "energy_not_measured": _why_no_energy(o, measured),
        "size_bytes": chosen.size_bytes,
        "estimate": _estimate(f.evaluated),
        "accuracy": {
            "estimate": estimate,
            "estimate_std": std,
            "short": f.evaluated.short_accuracy,
            "trained": f.trained.accuracy,
            "deployed": chosen.accuracy,
            "test": first_of(f.test),
        },
        "test_figures": dict(f.test) if f.test else None,
        **costs_of(o.space, choices, o.data.output_size)[0],
        "onnx": _relative(f.deployed.onnx, folder),
        "model": _relative(chosen.path, folder),
        "receipt": _relative(f.deployed.onnx.with_name("receipt.json"), folder),
        "parity": f.deployed.parity.to_json() if f.deployed.parity else None,
        **judged_finalist(o, f),
    }


def _baselines(o: Outcome) -> list[dict[str, Any]]:
    found = []
    if o.random_baseline is not None:
        f = o.random_baseline.finalist
        name = f"random search (best of {len(o.random_baseline.evaluated)})"
        costs = costs_of(o.space, o.space.choices([f.evaluated.arch]), o.data.output_size)[0]
        found.append(
            {
                **_baseline(o, name, "random", f.deployed, f.trained.accuracy, f.test, costs["params"]),
                **costs,
                "estimate": _estimate(f.evaluated),
                "note": "same limit, recipe, estimator and time for estimates; "
                f"{f.trained.epochs} of {o.recipe.epochs} epochs",
            }
        )
    for b in o.zoo:
        document = _baseline(o, b.name, "zoo", b.deployed, b.trained_accuracy, b.test, b.params)
        found.append({**document, "macs": None, "params": b.params, "note": b.note})
    return found


def _why_no_energy(o: Outcome, measured: Measurement | None) -> str | None:
    """Reason why there is no energy among a winner's figures; None where there is, or where nothing was measured."""
    if measured is None or o.target.site is None:
        return None
    device = measured.request.deployment.device
    return o.target.site.no_energy if device == CPU else o.target.site.run(why_no_energy, device)


def _baseline(
    o: Outcome,
    name: str,
    kind: str,
    deployed: Deployed,
    trained: float | None,
    test: Mapping[str, float] | None,
    params: int,
) -> dict[str, Any]:
    chosen = deployed.chosen
    measured = chosen.measurement if chosen else None
    judged_ms = o.config.limits.judged_ms(measured)
    missed = [] if chosen is None else o.config.limits.violations(seen_of(chosen, o.config.limits, params, None))
    accuracy = None
    if trained is not None:
        accuracy = {"trained": trained, "deployed": chosen.accuracy if chosen else None, "test": first_of(test)}
    return {
        "name": name,
        "kind": kind,
        "runtime": chosen.deployment.runtime if chosen else None,
        "precision": chosen.deployment.precision if chosen else None,
        "runs_on": chosen.deployment.device if chosen else None,
        "input": input_label(o.data, deployed.description.signature),
        "measured_latency_ms": latencies(measured),
        "machine": measured.machine if measured else None,
        "judged_ms": judged_ms,
        "within_limit": None if measured is None else judged_ms is not None and not missed,
        "missed": [violation.name for violation in missed],
        "accuracy": accuracy,
        "test_figures": dict(test) if test else None,
    }


def _estimator(o: Outcome) -> dict[str, Any]:
    """The estimators that evaluated the candidates, the reason for the choice, and their price."""
    evaluated = [*o.evaluated, *(o.random_baseline.evaluated if o.random_baseline else ())]
    by = Counter(e.estimator for e in evaluated)
    return {
        "asked": o.config.estimator,
        "name": o.estimator.name,
        "why": o.estimator.why,
        "unit": ESTIMATORS[o.estimator.name].unit,
        "interval_level": LEVEL,
        "prepared_s": o.seconds.get("supernet", o.prepared_s),
        "evaluated_by": [
            {
                "estimator": name,
                "candidates": count,
                "median_s": float(np.median([e.seconds for e in evaluated if e.estimator == name])),
            }
            for name, count in sorted(by.items())
        ],
    }


def _estimate(e: Evaluated) -> dict[str, Any]:
    """The estimate of a candidate before it was trained fully."""
    return {
        "estimator": e.estimator,
        "value": e.value,
        "unit": ESTIMATORS[e.estimator].unit,
        "interval": None if e.interval is None else list(e.interval),
        "seconds": e.seconds,
    }


def _agreement(o: Outcome) -> dict[str, Any]:
    """Kendall tau of the estimates with the trained accuracies of all finalists, and of parameters alone beside it."""
    both = [*o.finalists, *(o.random_baseline.finalists if o.random_baseline else ())]
    finalists = list({f.evaluated.arch.key: f for f in both}.values())
    params = o.space.costs(o.space.choices([f.evaluated.arch for f in finalists]), o.data.output_size)["params"]
    estimates = [f.evaluated.value for f in finalists]
    # the accuracy of a short training is the estimate itself
    trained = [None if f.trained.by_short_training else f.trained.accuracy for f in finalists]
    found = agreement(estimates, trained, params.tolist())
    enough = found.n >= FEWEST_COMPARED
    return {
        "kendall_tau": found.kendall_tau if enough else None,
        "params_kendall_tau": found.params_tau if enough else None,
        "n": found.n,
    }


def _predictor_quality(target: TargetModel) -> list[dict[str, Any]]:
    found = []
    for deployment in target.model.deployments:
        table = target.model.profile.table(deployment.covering(ALONE))
        assert table is not None
        error = table.held_out
        correction = target.model.corrections.get(deployment.continuous)
        found.append(
            {
                "deployment": deployment.name,
                "n_networks": table.measured,
                "n_heldout": error.networks if error else 0,
                "mape": error.mape if error else None,
                "within_10pct": error.within_10pct if error else None,
                "corrected_by": correction.scale if correction else None,
            }
        )
    return found


def first_of(figures: Mapping[str, float] | None) -> float | None:
    """The metric's value."""
    return next(iter(figures.values())) if figures else None


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder))
