"""The table of a search's candidates: what was trained, and a sample of what was only predicted."""

import math
from typing import Any

import numpy as np

from nas.controller.evaluators import MIN_FITTED, PREDICTOR
from nas.controller.results.outcome import Outcome
from nas.tasks import task_of
from predictors.accuracy import AccuracyPredictor
from search_spaces import Architecture, SearchSpace
from search_spaces.signature import Size

PLOTTED_SAMPLE = 600
"""Scored but untrained candidates that the table keeps, for the picture."""


def candidate_rows(o: Outcome) -> list[dict[str, Any]]:
    """One row per candidate: all evaluated ones, and a random sample of those that were only scored."""
    estimates = Estimates(o)
    trained = {f.evaluated.arch.key: f.trained.accuracy for f in o.finalists}
    anchors = {a.key for a in o.space.anchors}
    random = o.random_baseline.evaluated if o.random_baseline else ()
    sampled = o.space.sample(PLOTTED_SAMPLE, np.random.default_rng(o.config.seed + 1))
    sampled = sampled[o.scorer.feasible(sampled)]
    rows = []
    origins = [("anchor" if e.arch.key in anchors else "search", e) for e in o.evaluated] + [
        ("random", e) for e in random
    ]
    for origin, e in origins:
        row = _row(o, e.arch, origin, estimates)
        finalist_accuracy = trained.get(e.arch.key, math.nan)
        low, high = e.interval or (math.nan, math.nan)
        row |= {
            "trial": e.trial,
            "estimator": e.estimator,
            "estimate": e.value,
            "estimate_low": low,
            "estimate_high": high,
            "estimate_s": e.seconds,
            "accuracy_trained": finalist_accuracy,
            "state": "evaluated",
        }
        if e.accuracy is not None:
            row |= {"accuracy_estimate": e.accuracy, "accuracy_std": 0.0}  # what was seen: the best estimate of itself
        if e.short_accuracy is not None:
            row["accuracy_short"] = e.short_accuracy
        rows.append(row)
    for f in o.failed:
        rows.append({**_row(o, f.arch, "search", estimates), "trial": f.trial, "state": "failed", "reason": f.reason})
    for choices in sampled:
        rows.append(_row(o, o.space.architecture(choices), "search", estimates))
    _mark_pareto([r for r in rows if r["state"] == "evaluated" and r["origin"] != "random"])
    return rows


class Estimates:
    """What a predictor, fitted on the candidates whose accuracy was seen, says of any candidate.

    Values that were predicted themselves teach nothing, and those that are no accuracies nothing of that kind.
    """

    def __init__(self, o: Outcome) -> None:
        self._space = o.space
        seen = [(e.arch, e.accuracy) for e in o.evaluated if e.estimator != PREDICTOR and e.accuracy is not None]
        choices = o.space.choices([arch for arch, _ in seen])
        accuracy = np.array([accuracy for _, accuracy in seen], dtype=np.float64)
        self._predictor = (
            AccuracyPredictor(features=o.space.features, seed=o.config.seed).fit(choices, accuracy)
            if len(seen) >= MIN_FITTED
            else None
        )

    def of(self, arch: Architecture) -> tuple[float | None, float | None]:
        """Expected accuracy, as the estimator would see it, and its standard deviation; None with too few seen."""
        if self._predictor is None:
            return None, None
        prediction = self._predictor.predict(self._space.choices([arch]))
        return float(prediction.mean[0]), float(prediction.std[0])


def _row(o: Outcome, arch: Architecture, origin: str, estimates: Estimates) -> dict[str, Any]:
    latency = o.scorer.describe(arch)
    estimate, std = estimates.of(arch)
    return {
        "key": arch.key,
        "trial": -1,
        "origin": origin,
        "predicted_latency_ms": latency.mean_ms,
        "predicted_std_ms": latency.std_ms,
        "deployment": latency.deployment.name,
        "estimator": "",
        "estimate": math.nan,
        "estimate_low": math.nan,
        "estimate_high": math.nan,
        "estimate_s": math.nan,
        "accuracy_estimate": math.nan if estimate is None else estimate,
        "accuracy_std": math.nan if std is None else std,
        "accuracy_short": math.nan,
        "accuracy_trained": math.nan,
        **costs_of(o.space, arch, o.data.output_size),
        "input": task_of(o.data).input_label(o.space.signature(arch, o.data.output_size).input),
        "pareto": False,
        "state": "scored",
        "reason": "",
    }


def _mark_pareto(rows: list[dict[str, Any]]) -> None:
    """Set `pareto` on the rows that no other beats in both predicted latency and estimate."""
    best = -math.inf
    for row in sorted(rows, key=lambda r: (r["predicted_latency_ms"], -r["estimate"])):
        if row["estimate"] > best:
            best = row["estimate"]
            row["pareto"] = True


def costs_of(space: SearchSpace, arch: Architecture, size: Size) -> dict[str, int]:
    costs = space.costs(space.choices([arch]), size)
    return {"macs": int(costs["macs"][0]), "params": int(costs["params"][0])}
