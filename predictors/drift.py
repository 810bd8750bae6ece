"""Strength with which the latencies of one deployment follow the slow phases of a device.

A small reference network, timed beside every network, shows how slow the device is at that moment. Deployments do not
suffer alike from what slows it down (a neighbour's caches and memory traffic, a lower clock): where the reference takes
5 % longer, another precision may take 13 % longer. So latency is taken to be what it usually is, times the slowness to
a power that is learned here.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]

MIN_NETWORKS = 40
"""Smallest number of networks to learn from: with fewer, what networks cost is known too roughly to tell what else made
them slow."""
PRIOR_STD = 1.0
"""Standard deviation of the exponent around 1."""
_FOLDS = 8


def drift_exponent(columns: Floats, latency_ms: Floats, slowness: Floats) -> float:
    """The exponent b of latency = usual latency * slowness^b; 1 where the measurements do not say.

    The errors of an additive model on networks that it has not seen, fitted at b = 1, are regressed on the logarithm of
    the slowness; a normal prior around 1 decides where slowness hardly varies.

    Args:
        columns: (n, k) non-negative quantities that latency is a sum over, as `block_features.block_columns` summed.
        latency_ms: (n,) as measured, positive.
        slowness: (n,) the reference network's time relative to its usual one, positive.
    """
    logs = np.log(slowness) - np.log(slowness).mean()
    if len(latency_ms) < MIN_NETWORKS or not logs.any():
        return 1.0
    steady = latency_ms / slowness
    errors = np.log(steady / _left_out(columns, steady))
    slope = float(logs @ errors / (logs @ logs))
    variance = float(np.var(errors - slope * logs) / (logs @ logs))
    return 1 + slope * PRIOR_STD**2 / (PRIOR_STD**2 + variance)


def _left_out(columns: Floats, latency_ms: Floats) -> Floats:
    """Predictions for each network by additive models that never saw it, (n,) ms."""
    fold = np.arange(len(columns)) % _FOLDS
    found = np.empty(len(columns))
    design = np.column_stack([np.ones(len(columns)), columns / (columns.mean(axis=0) + 1e-12)])
    ridge = 0.01 * np.eye(design.shape[1])
    for k in range(_FOLDS):
        seen, held = fold != k, fold == k
        rows = np.concatenate([design[seen] / latency_ms[seen, None], ridge / latency_ms[seen].mean()])
        costs, _ = nnls(rows, np.concatenate([np.ones(int(seen.sum())), np.zeros(len(ridge))]), maxiter=10_000)
        found[held] = design[held] @ costs
    return np.asarray(np.maximum(found, 1e-3 * latency_ms.min()))
