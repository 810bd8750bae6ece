"""A new device from few networks: how much the profiles of known devices help.

The tables of one number of threads in a profile stand for the new device, the others for the known ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment
from nas.targets.fitting import training_data
from nas.targets.latency import PriorPredictors
from nas.targets.profile import DeviceProfile
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor
from predictors.block_transfer import TransferredLatencyPredictor

METHODS = ("transfer", "own networks alone", "one factor", "median")


def few_networks_page(profile: DeviceProfile, threads: int, sizes: Sequence[int], seeds: int) -> str:
    """A markdown table: mean error and hit rate at 10 % on the networks left over, means over `seeds` draws."""
    known = replace(profile, tables=tuple(t for t in profile.tables if t.deployment.threads != threads))
    lines = [
        "| deployment | networks | " + " | ".join(f"{m}: MAPE % | within 10 %" for m in METHODS) + " |",
        "|---|---" + "|---" * (2 * len(METHODS)) + "|",
    ]
    for table in profile.tables:
        if table.deployment.threads != threads:
            continue
        sources = PriorPredictors([known]).nearest(table.deployment)
        measured = np.flatnonzero(np.isfinite(table.steady_latency_ms()))
        for size in sizes:
            draws = [np.random.default_rng(seed).permutation(measured) for seed in range(seeds)]
            found = [_judged(profile, table.deployment, sources, d[:size], d[size:]) for d in draws]
            means = np.mean(found, axis=0)
            cells = [f"{100 * e:.1f} | {100 * hit:.0f}" if np.isfinite(e) else "- | -" for e, hit in means]
            lines.append(f"| {table.deployment.name} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _judged(
    profile: DeviceProfile,
    deployment: Deployment,
    sources: Sequence[BlockLatencyPredictor],
    train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Mean error and hit rate (methods, 2) on the networks `test`; NaN where there are too few for a method."""
    networks, latency_ms, block_ms = training_data(profile, deployment, np.sort(train))
    unseen, truth, _ = training_data(profile, deployment, test)
    nearest = sources[0]
    factor = float(np.median(latency_ms / nearest.mean_ms(networks)))
    predictions = [
        TransferredLatencyPredictor(sources).fit(networks, latency_ms, block_ms).predict(unseen).mean,
        BlockLatencyPredictor().fit(networks, latency_ms, block_ms).predict(unseen).mean
        if len(train) >= MIN_NETWORKS
        else np.full(len(test), np.nan),
        factor * nearest.mean_ms(unseen),
        np.full(len(test), np.median(latency_ms)),
    ]
    errors = [np.abs(prediction / truth - 1) for prediction in predictions]
    return np.array([[e.mean(), (e <= 0.10).mean()] for e in errors])
