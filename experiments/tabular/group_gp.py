"""A Gaussian process over groups of features, for latencies from a handful of measurements.

Latency is additive in milliseconds, and measurement noise is proportional to the latency, with outliers. So the model
is, relative to the mean latency of the training rows,

    y_i / mean = 1 + b + sum_g f_g(x_i) + e_i,     f_g ~ GP(0, v_g k_g),     e_i ~ Student-t(nu) * sigma * f(x_i)

with one learned variance v_g per group (log-normal prior; multiple kernel learning, Gönen & Alpaydın 2011, by maximum
a posteriori of the marginal likelihood), and the t noise handled by expectation maximisation over per-row precisions
(Lange et al. 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from experiments.tabular.features import KernelBlock
from experiments.tabular.rows import Matrix, Vector
from predictors.base import NotFittedError

BIAS_VARIANCE = 1.0
SMALLEST = 0.02
"""No prediction, and no noise scale, is below this part of the mean latency."""

_BOUNDS = (-8.0, 6.0)
_NORMAL_90 = 1.6449
_PRIOR_FACTOR = 1.3  # t noise, and variances fitted on the same rows: the plain deviation is too small
_CHUNK_ROWS = 16384


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A block centred and scaled on the training rows so that its kernel has unit mean variance there."""

    block: KernelBlock
    center: Vector
    factor: float
    train: Matrix

    def rows(self, features: Matrix) -> Matrix:
        return (features[:, self.block.start : self.block.stop] - self.center) * self.factor

    def kernel(self, rows: Matrix) -> Matrix:
        product = rows @ self.train.T
        if not self.block.rbf:
            return product
        squared = (rows**2).sum(1)[:, None] + (self.train**2).sum(1)[None, :] - 2 * product
        return np.asarray(np.exp(-np.maximum(squared, 0) / 2))

    def diagonal(self, rows: Matrix) -> Vector:
        return np.ones(len(rows)) if self.block.rbf else np.asarray((rows**2).sum(1))


@dataclass(frozen=True, slots=True)
class Posterior:
    """Where the optimisation ended: weights of the training rows and leave-one-out residuals, relative units."""

    weights: Vector
    inverse: Matrix
    variances: Vector
    noise_variance: float
    std_factor: float


class GroupGP:
    """Fits and predicts on encoded features; latencies in any unit, predictions in the same.

    Args:
        blocks: places and prior variances of the feature groups.
        noise: prior of the relative noise.
        spread: standard deviation of the log-normal priors, in nats of variance.
        nu: degrees of freedom of the noise.
        passes: of expectation maximisation.
    """

    def __init__(
        self, blocks: Sequence[KernelBlock], noise: float = 0.05, spread: float = 3.0, nu: float = 3.0, passes: int = 6
    ) -> None:
        self.blocks = tuple(blocks)
        self.noise = noise
        self.spread = spread
        self.nu = nu
        self.passes = passes
        self.posterior_: Posterior | None = None

    def fit(self, features: Matrix, y: Vector) -> Self:
        """features (n, columns), y (n,) positive."""
        self.unit_ = float(y.mean())
        self.scaled_ = tuple(_scale(block, features) for block in self.blocks)
        target = y / self.unit_ - 1
        kernels = np.stack([part.kernel(part.train) for part in self.scaled_])
        prior = np.log([block.variance for block in self.blocks] + [self.noise**2])
        theta = prior
        level = np.maximum(y / self.unit_, 0.15) ** 2  # noise is proportional to the latency
        precision_loss = np.ones(len(y))  # Student-t as a normal whose variance is inflated row by row
        for _ in range(self.passes):
            shape = level * precision_loss
            theta = self._maximise(theta, prior, kernels, shape, target)
            inverse, weights, _ = _solve(theta, kernels, shape, target)
            noise = np.exp(theta[-1]) * shape
            residual = weights * noise
            fit_variance = np.maximum(noise - noise**2 * np.diag(inverse), 0)
            level = np.maximum(1 + target - residual, 0.15) ** 2
            precision_loss = (self.nu + (residual**2 + fit_variance) / (np.exp(theta[-1]) * level)) / (self.nu + 1)
        left_out = 1 + target - weights / np.diag(inverse)
        self.left_out_ = self.unit_ * np.maximum(left_out, SMALLEST)
        """What the model says of each training row without that row (hyperparameters aside), (n,), in the unit of y."""
        self.posterior_ = Posterior(
            weights=weights,
            inverse=inverse,
            variances=np.exp(theta[:-1]),
            noise_variance=float(np.exp(theta[-1])),
            std_factor=_std_factor(inverse, weights, noise, np.exp(theta[-1]) * level),
        )
        return self

    def predict(self, features: Matrix) -> tuple[Vector, Vector]:
        """Mean and standard deviation, each (n,), in the unit of y.

        Raises:
            NotFittedError: before `fit`.
        """
        if self.posterior_ is None:
            raise NotFittedError("call fit(choices, latency_ms) first")
        parts = [
            self._predict_chunk(features[k : k + _CHUNK_ROWS], self.posterior_)
            for k in range(0, max(len(features), 1), _CHUNK_ROWS)
        ]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([std for _, std in parts])

    def _predict_chunk(self, features: Matrix, posterior: Posterior) -> tuple[Vector, Vector]:
        cross = np.full((len(features), len(posterior.weights)), BIAS_VARIANCE)
        variance = np.full(len(features), BIAS_VARIANCE)
        for part, v in zip(self.scaled_, posterior.variances, strict=True):
            rows = part.rows(features)
            cross += v * part.kernel(rows)
            variance += v * part.diagonal(rows)
        mean = np.maximum(1 + cross @ posterior.weights, SMALLEST)
        variance -= ((cross @ posterior.inverse) * cross).sum(1)
        variance = np.maximum(variance, 0) + posterior.noise_variance * np.maximum(mean, 0.15) ** 2
        return self.unit_ * mean, self.unit_ * posterior.std_factor * np.sqrt(variance)

    def _maximise(self, start: Vector, prior: Vector, kernels: Matrix, shape: Vector, target: Vector) -> Vector:
        """Maximum a posteriori of the log variances."""

        def loss(theta: Vector) -> tuple[float, Vector]:
            inverse, weights, half_log_det = _solve(theta, kernels, shape, target)
            slope = inverse - np.outer(weights, weights)
            gradient = np.append(
                np.exp(theta[:-1]) * np.tensordot(kernels, slope, 2), np.exp(theta[-1]) * (np.diag(slope) * shape).sum()
            )
            z = (theta - prior) / self.spread
            value = 0.5 * float(target @ weights) + half_log_det + 0.5 * float(z @ z)
            return value, 0.5 * gradient + z / self.spread

        bounds = [(p + _BOUNDS[0], p + _BOUNDS[1]) for p in prior]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
        return np.asarray(found.x, dtype=np.float64)


def _scale(block: KernelBlock, features: Matrix) -> _Scaled:
    columns = features[:, block.start : block.stop]
    center = columns.mean(0)
    centred = columns - center
    factor = 1 / np.sqrt(max(float((centred**2).sum(1).mean()), 1e-12))
    return _Scaled(block, center, factor, centred * factor)


def _solve(theta: Vector, kernels: Matrix, shape: Vector, target: Vector) -> tuple[Matrix, Vector, float]:
    """Inverse covariance of the training rows, its product with the targets, and half its log determinant."""
    covariance = BIAS_VARIANCE + np.tensordot(np.exp(theta[:-1]), kernels, 1)
    covariance[np.diag_indices_from(covariance)] += np.exp(theta[-1]) * shape + 1e-9
    lower = np.linalg.cholesky(covariance)
    inverse_lower = solve_triangular(lower, np.eye(len(target)), lower=True, check_finite=False)
    inverse = inverse_lower.T @ inverse_lower
    return inverse, inverse @ target, float(np.log(np.diag(lower)).sum())


def _std_factor(inverse: Matrix, weights: Vector, noise: Vector, plain_noise: Vector) -> float:
    """What the standard deviation is multiplied with so that 90 % intervals hold 90 % of the left-out training rows.

    Shrunk towards a constant, because a 90 % quantile of ten rows says little.
    """
    diagonal = np.diag(inverse)
    residual = weights / diagonal
    variance = np.maximum(1 / diagonal - noise, 0) + plain_noise
    n = len(residual)
    z = np.sort(np.abs(residual) / np.sqrt(variance))
    observed = float(z[min(n, int(np.ceil(0.9 * (n + 1)))) - 1]) / _NORMAL_90
    prior_rows = 10.0
    return float(np.clip((n * observed + prior_rows * _PRIOR_FACTOR) / (n + prior_rows), 0.6, 3.0))
