"""The promise of an evaluation: expected improvement, the chance to keep a limit; fronts and their hypervolume."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

Floats = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_LOG_HALF_PI = 0.5 * np.log(np.pi / 2)


def log_expected_improvement(mean: Floats, std: Floats, best: float) -> Floats:
    """Log of E[max(y - best, 0)] for y ~ N(mean, std), all (n,); exact also where EI itself is zero in floats.

    Ament et al. 2023, "Unexpected improvements to expected improvement", equation 9.
    """
    z = (mean - best) / std
    upper = np.log(np.maximum(_density(np.maximum(z, -1.0)) + np.maximum(z, -1.0) * ndtr(np.maximum(z, -1.0)), 1e-300))
    low = np.minimum(z, -1.0)
    # phi(z) + z Phi(z) = phi(z) (1 - |z| sqrt(pi / 2) erfcx(|z| / sqrt(2))); beyond |z| of 1e4 the bracket is 1 / z^2
    bracket = 1 - np.exp(_LOG_HALF_PI + np.log(-low) + np.log(erfcx(-low / np.sqrt(2))))
    bracket = np.where(low < -1e4, 1 / low**2, np.maximum(bracket, 1e-300))
    lower = -0.5 * low**2 - _LOG_SQRT_2PI + np.log(bracket)
    return np.asarray(np.where(z > -1, upper, lower) + np.log(std), dtype=np.float64)


def log_feasibility(mean: Floats, std: Floats, limit: float) -> Floats:
    """Log of P[y <= limit] for y ~ N(mean, std), all (n,)."""
    return np.asarray(log_ndtr((limit - mean) / std), dtype=np.float64)


def pareto_front(points: Floats) -> Floats:
    """The points (n, 2) that no other beats, both coordinates higher is better: (k, 2), first coordinate increasing."""
    order = np.lexsort((-points[:, 1], -points[:, 0]))
    ranked = points[order]
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(ranked[:, 1])[:-1]])
    return np.asarray(ranked[ranked[:, 1] > best_before][::-1], dtype=np.float64)


def hypervolume(points: Floats, reference: tuple[float, float]) -> float:
    """Area that points (n, 2) dominate above `reference`, both coordinates higher is better."""
    inside = points[(points > np.array(reference)).all(axis=1)]
    if not len(inside):
        return 0.0
    front = pareto_front(inside)
    widths = np.diff(front[:, 0], prepend=reference[0])
    return float((widths * (front[:, 1] - reference[1])).sum())


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * z**2 - _LOG_SQRT_2PI), dtype=np.float64)
