"""The result of a search as one document and one table; pure functions of what happened."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas import __version__
from nas.controller.arm import Evaluated, Failed
from nas.controller.baselines import Baseline
from nas.controller.config import SearchConfig
from nas.controller.feasibility import DeploymentRange
from nas.controller.finalists import Finalist
from nas.controller.run_folder import RunFolder
from nas.controller.scoring import LatencyScorer
from nas.controller.target_model import TargetModel
from nas.data import ImageData
from nas.export.deploy import Deployed
from nas.measure.measurement import Measurement
from nas.training.config import TrainConfig
from predictors.accuracy import AccuracyPredictor
from search_spaces import Architecture, StagedSpace

SCHEMA = 1
PLOTTED_SAMPLE = 600
"""Scored but untrained candidates that the table keeps, for the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomOpponent:
    """The random baseline: everything it trained, and its best network."""

    evaluated: tuple[Evaluated, ...]
    finalist: Finalist


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that happened in a search."""

    config: SearchConfig
    folder: RunFolder
    data: ImageData
    space: StagedSpace
    target: TargetModel
    ranges: tuple[DeploymentRange, ...]
    scorer: LatencyScorer
    short_s: float
    """Nominal seconds of a short training."""
    recipe: TrainConfig
    evaluated: tuple[Evaluated, ...]
    failed: tuple[Failed, ...]
    finalists: tuple[Finalist, ...]
    winners: tuple[Finalist, ...]
    opponent: RandomOpponent | None
    zoo: tuple[Baseline, ...]
    seconds: dict[str, float]
    notes: tuple[str, ...]


def result_document(o: Outcome) -> dict[str, Any]:
    """The document of `result.json` and `--json`: accuracies are fractions, latencies ms at the stated batch."""
    estimates = _Estimates(o)
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": o.config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_dir": str(o.folder.path),
        "task": "classification",
        "target": o.config.target,
        "device": o.target.model.profile.fingerprint.cpu_model,
        "limit_ms": o.config.latency_ms,
        "feasible": any(r.satisfiable for r in o.ranges),
        "space": o.space.name,
        "space_size": o.space.size,
        "resolutions": sorted(int(o.space.decisions[-1].options[i]) for i in o.space.allowed[-1]),
        "seed": o.config.seed,
        "data": {
            "name": o.data.name,
            "classes": o.data.num_classes,
            "train": len(o.data.train),
            "val": len(o.data.val),
            "test": len(o.data.test),
        },
        "recipe": {
            "short_s": o.short_s,
            "final_epochs": o.recipe.epochs,
            "precision": o.recipe.precision,
        },
        "budget_s": o.config.budget_s,
        "seconds": o.seconds,
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
            for r in o.ranges
        ],
        "predictor": _predictor_quality(o.target),
        "best": [_winner(o, f, rank, estimates) for rank, f in enumerate(o.winners, start=1)],
        "baselines": _baselines(o),
        "agreement": _agreement(o),
        "notes": [*o.data.notes, *o.target.notes, *o.notes],
    }


def candidate_rows(o: Outcome) -> list[dict[str, Any]]:
    """One row per candidate: all evaluated ones, and a random sample of those that were only scored."""
    estimates = _Estimates(o)
    trained = {f.evaluated.arch.key: f.trained_accuracy for f in o.finalists}
    anchors = {a.key for a in o.space.anchors}
    random = o.opponent.evaluated if o.opponent else ()
    sampled = o.space.sample(PLOTTED_SAMPLE, np.random.default_rng(o.config.seed + 1))
    sampled = sampled[o.scorer.feasible(sampled)]
    rows = []
    origins = [("anchor" if e.arch.key in anchors else "search", e) for e in o.evaluated] + [
        ("random", e) for e in random
    ]
    for origin, e in origins:
        row = _row(o, e.arch, origin, estimates)
        finalist_accuracy = trained.get(e.arch.key, math.nan)
        row |= {
            "trial": e.trial,
            "accuracy_estimate": e.accuracy,  # what was seen is the best estimate of itself
            "accuracy_std": 0.0,
            "accuracy_short": e.accuracy,
            "accuracy_trained": finalist_accuracy,
            "state": "evaluated",
        }
        rows.append(row)
    for f in o.failed:
        rows.append({**_row(o, f.arch, "search", estimates), "trial": f.trial, "state": "failed", "reason": f.reason})
    for choices in sampled:
        rows.append(_row(o, o.space.architecture(choices), "search", estimates))
    _mark_pareto([r for r in rows if r["state"] == "evaluated" and r["origin"] != "random"])
    return rows


def latencies(measurement: Measurement | None) -> dict[str, float] | None:
    """p50, p90 and p99 in ms, or None where nothing was measured."""
    if measurement is None or measurement.failed is not None:
        return None
    return {"p50": measurement.p50_ms, "p90": measurement.p90_ms, "p99": measurement.p99_ms}


class _Estimates:
    """What the learned predictor, fitted on all evaluated candidates, says of any candidate."""

    def __init__(self, o: Outcome) -> None:
        self._space = o.space
        choices = o.space.choices([e.arch for e in o.evaluated])
        accuracy = np.array([e.accuracy for e in o.evaluated], dtype=np.float64)
        self._predictor = (
            AccuracyPredictor(features=o.space.features, seed=o.config.seed).fit(choices, accuracy)
            if len(o.evaluated) >= 4
            else None
        )

    def of(self, arch: Architecture) -> tuple[float | None, float | None]:
        """Estimated accuracy after a short training and its standard deviation; None with too few evaluations."""
        if self._predictor is None:
            return None, None
        prediction = self._predictor.predict(self._space.choices([arch]))
        return float(prediction.mean[0]), float(prediction.std[0])


def _winner(o: Outcome, f: Finalist, rank: int, estimates: _Estimates) -> dict[str, Any]:
    chosen = f.deployed.chosen
    assert chosen is not None
    assert chosen.path is not None
    arch = f.evaluated.arch
    predicted = o.scorer.predicted(arch, chosen.deployment)
    estimate, std = estimates.of(arch)
    measured = chosen.measurement
    slowest = measured.worst_session_p50_ms if measured else predicted.upper_ms
    folder = o.folder.path
    return {
        "rank": rank,
        "key": arch.key,
        "architecture": o.space.to_json(arch),
        "runtime": chosen.deployment.runtime,
        "precision": chosen.deployment.precision,
        "threads": chosen.deployment.threads,
        "resolution": f.deployed.description.resolution,
        "epochs": f.epochs,
        "predicted_latency_ms": predicted.mean_ms,
        "predicted_std_ms": predicted.std_ms,
        "measured_latency_ms": latencies(measured),
        "session_p50_ms": [s.p50_ms for s in measured.sessions] if measured else [],
        "verdict": measured.verdict if measured else "not measured here",
        "measured_here": measured is not None,
        "within_limit": slowest <= o.config.latency_ms,
        "margin_pct": 100 * (1 - slowest / o.config.latency_ms),
        "memory_bytes": measured.memory_bytes if measured else None,
        "accuracy": {
            "estimate": estimate,
            "estimate_std": std,
            "short": f.evaluated.accuracy,
            "trained": f.trained_accuracy,
            "deployed": chosen.accuracy,
            "test": f.test_accuracy,
        },
        **_costs(o.space, arch, o.data.num_classes),
        "onnx": _relative(f.deployed.onnx, folder),
        "model": _relative(chosen.path, folder),
        "receipt": _relative(f.deployed.onnx.with_name("receipt.json"), folder),
        "parity": f.deployed.parity.to_json() if f.deployed.parity else None,
        "deployments": [t.to_json() for t in f.deployed.tried],
    }


def _baselines(o: Outcome) -> list[dict[str, Any]]:
    found = []
    if o.opponent is not None:
        f = o.opponent.finalist
        name = f"random search (best of {len(o.opponent.evaluated)})"
        found.append(
            {
                **_opponent(o, name, "random", f.deployed, f.trained_accuracy, f.test_accuracy),
                **_costs(o.space, f.evaluated.arch, o.data.num_classes),
                "note": f"same limit, recipe and time for short trainings; {f.epochs} of {o.recipe.epochs} epochs",
            }
        )
    for b in o.zoo:
        document = _opponent(o, b.name, "zoo", b.deployed, b.trained_accuracy, b.test_accuracy)
        found.append({**document, "macs": None, "params": b.params, "note": b.note})
    return found


def _opponent(
    o: Outcome, name: str, kind: str, deployed: Deployed, trained: float | None, test: float | None
) -> dict[str, Any]:
    chosen = deployed.chosen
    measured = chosen.measurement if chosen else None
    accuracy = None
    if trained is not None:
        accuracy = {"trained": trained, "deployed": chosen.accuracy if chosen else None, "test": test}
    return {
        "name": name,
        "kind": kind,
        "runtime": chosen.deployment.runtime if chosen else None,
        "precision": chosen.deployment.precision if chosen else None,
        "resolution": deployed.description.resolution,
        "measured_latency_ms": latencies(measured),
        "within_limit": measured.keeps(o.config.latency_ms) if measured else None,
        "accuracy": accuracy,
    }


def _agreement(o: Outcome) -> dict[str, Any]:
    """Kendall tau between short and full trainings over all finalists, and of parameters alone beside it."""
    finalists = [*o.finalists, *([o.opponent.finalist] if o.opponent else [])]
    if len(finalists) < 3:
        return {"kendall_tau": None, "params_kendall_tau": None, "n": len(finalists)}
    from scipy.stats import kendalltau

    truth = [f.trained_accuracy for f in finalists]
    params = o.space.costs(o.space.choices([f.evaluated.arch for f in finalists]), o.data.num_classes)["params"]

    def tau(score: NDArray[np.float64] | list[float]) -> float | None:
        statistic = float(kendalltau(score, truth).statistic)
        return statistic if math.isfinite(statistic) else None

    return {
        "kendall_tau": tau([f.evaluated.accuracy for f in finalists]),
        "params_kendall_tau": tau(params),
        "n": len(finalists),
    }


def _predictor_quality(target: TargetModel) -> list[dict[str, Any]]:
    found = []
    for deployment in target.model.deployments:
        table = target.model.profile.table(deployment)
        assert table is not None
        error = table.held_out
        correction = target.model.corrections.get(deployment)
        found.append(
            {
                "deployment": deployment.name,
                "n_networks": len(table.latency_ms),
                "n_heldout": error.networks if error else 0,
                "mape": error.mape if error else None,
                "within_10pct": error.within_10pct if error else None,
                "corrected_by": correction.factor if correction else None,
            }
        )
    return found


def _row(o: Outcome, arch: Architecture, origin: str, estimates: _Estimates) -> dict[str, Any]:
    latency = o.scorer.describe(arch)
    estimate, std = estimates.of(arch)
    return {
        "key": arch.key,
        "trial": -1,
        "origin": origin,
        "predicted_latency_ms": latency.mean_ms,
        "predicted_std_ms": latency.std_ms,
        "deployment": latency.deployment.name,
        "accuracy_estimate": math.nan if estimate is None else estimate,
        "accuracy_std": math.nan if std is None else std,
        "accuracy_short": math.nan,
        "accuracy_trained": math.nan,
        **_costs(o.space, arch, o.data.num_classes),
        "resolution": o.space.resolution(arch),
        "pareto": False,
        "state": "scored",
        "reason": "",
    }


def _mark_pareto(rows: list[dict[str, Any]]) -> None:
    """Set `pareto` on the rows that no other beats in both predicted latency and short-training accuracy."""
    best = -math.inf
    for row in sorted(rows, key=lambda r: (r["predicted_latency_ms"], -r["accuracy_short"])):
        if row["accuracy_short"] > best:
            best = row["accuracy_short"]
            row["pareto"] = True


def _costs(space: StagedSpace, arch: Architecture, num_classes: int) -> dict[str, int]:
    costs = space.costs(space.choices([arch]), num_classes)
    return {"macs": int(costs["macs"][0]), "params": int(costs["params"][0])}


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder))
