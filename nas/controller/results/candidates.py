"""The table of a search's candidates: what was trained, and a sample of what was only predicted."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nas.controller.evaluators import MIN_FITTED, PREDICTOR
from nas.controller.results.outcome import Outcome
from nas.tasks import task_of
from predictors.accuracy import AccuracyPredictor
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

PLOTTED_SAMPLE = 600
"""Scored but untrained candidates that the table keeps, for the picture."""


def candidate_rows(o: Outcome) -> list[dict[str, Any]]:
    """One row per candidate: all evaluated ones, and a random sample of those that were only scored."""
    estimates = Estimates(o)
    trained = {f.evaluated.arch.key: f.trained.accuracy for f in o.finalists}
    designs = o.inputs.target.designs
    anchors = {a.key for a in (*o.space.anchors, *(designs.archs if designs else ()))}
    random = o.random_baseline.evaluated if o.random_baseline else ()
    sampled = o.space.sample(PLOTTED_SAMPLE, np.random.default_rng(o.config.seed + 1))
    sampled = sampled[o.scorer.feasible(sampled)]
    evaluated = [("anchor" if e.arch.key in anchors else "search", e) for e in o.evaluated] + [
        ("random", e) for e in random
    ]
    origins = [origin for origin, _ in evaluated] + ["search"] * (len(o.failed) + len(sampled))
    archs = [e.arch for _, e in evaluated] + [f.arch for f in o.failed]
    rows = _rows(o, [*archs, *(o.space.architecture(choices) for choices in sampled)], origins, estimates)
    for row, (_, e) in zip(rows, evaluated, strict=False):
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
    for row, f in zip(rows[len(evaluated) :], o.failed, strict=False):
        row |= {"trial": f.trial, "state": "failed", "reason": f.reason}
    mark_pareto([r for r in rows if r["state"] == "evaluated" and r["origin"] != "random"])
    return rows


class Estimates:
    """Accuracies of any candidate, from a predictor fitted on the candidates whose accuracy was seen.

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

    def of(self, choices: Choices) -> list[tuple[float | None, float | None]]:
        """Expected accuracy of each of n candidates (n, decisions), as the estimator would see it, and its standard
        deviation; None with too few seen."""
        if self._predictor is None:
            return [(None, None)] * len(choices)
        prediction = self._predictor.predict(choices)
        return [(float(mean), float(std)) for mean, std in zip(prediction.mean, prediction.std, strict=True)]


def _rows(
    o: Outcome, archs: Sequence[Architecture], origins: Sequence[str], estimates: Estimates
) -> list[dict[str, Any]]:
    """One row per network as if it was only scored. All networks are asked about together: one by one, hundreds of
    predictions take longer than the rest of the evidence."""
    choices = o.space.choices(list(archs))
    costs = costs_of(o.space, choices, o.data.output_size)
    latencies, accuracies = o.scorer.describe_all(choices), estimates.of(choices)
    return [
        {
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
            **cost,
            "input": task_of(o.data).input_label(o.space.signature(arch, o.data.output_size).input),
            "pareto": False,
            "state": "scored",
            "reason": "",
        }
        for arch, origin, latency, (estimate, std), cost in zip(
            archs, origins, latencies, accuracies, costs, strict=True
        )
    ]


def mark_pareto(rows: list[dict[str, Any]]) -> None:
    """Set `pareto` on the rows that no other beats in both predicted latency and estimate."""
    best = -math.inf
    for row in sorted(rows, key=lambda r: (r["predicted_latency_ms"], -r["estimate"])):
        if row["estimate"] > best:
            best = row["estimate"]
            row["pareto"] = True


def costs_of(space: SearchSpace, choices: Choices, size: Size) -> list[dict[str, int]]:
    """MACs and parameters of each of n networks (n, decisions) with answers of `size`."""
    costs = space.costs(choices, size)
    return [{"macs": int(m), "params": int(p)} for m, p in zip(costs["macs"], costs["params"], strict=True)]
