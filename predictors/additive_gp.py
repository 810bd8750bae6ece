"""A Gaussian process whose kernel is a sum of Matern-5/2 terms, each on its own columns with shared or own scales.

Hyper-parameters are the maximum of the marginal likelihood times log-normal priors; the prior length scale grows with
the square root of the number of columns, which keeps the model sane when there are more columns than rows
(Hvarfner et al., "Vanilla Bayesian optimization performs great in high dimensions", ICML 2024).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]

_JITTER = 1e-6
_MAX_ROWS_TUNING = 250  # marginal likelihood costs n^3 per step; more rows hardly move its maximum
_CACHED_ENTRIES = 1 << 16  # of a kernel matrix worked on at once: three such arrays of float32 stay in a core's cache
_MAX_ROWS_VARIANCE = 96  # the variance of a candidate costs m^2, its mean only n


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: the columns it sees, and for each of them the index of the length scale it uses."""

    columns: NDArray[np.intp]
    scales: NDArray[np.intp]

    @property
    def n_scales(self) -> int:
        return int(self.scales.max()) + 1


@dataclass(frozen=True, slots=True)
class _Kernel:
    log_variance: float
    inverse_scale: Floats  # per column

    def scaled(self, x: Floats) -> Floats:
        return x * self.inverse_scale


def _sq_distances(a: Floats, b: Floats) -> Floats:
    squares = (-2.0 * a) @ b.T
    squares += np.einsum("id,id->i", a, a)[:, None]
    squares += np.einsum("id,id->i", b, b)
    return np.maximum(squares, 0.0, out=squares)


def _matern52(squares: Floats, variance: float) -> tuple[Floats, Floats]:
    """The kernel and sqrt(5) times its distance, both (n, m); overwrites `squares`."""
    squares *= 5.0
    squares += 1e-12
    r = np.sqrt(squares)
    squares *= 1.0 / 3.0
    squares += r
    squares += 1.0
    k = np.exp(-r)
    k *= squares
    k *= variance
    return k, r


def _lifted(a: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows (n, d + 2) whose product with `_lifted_known` of others is five times their squared distance."""
    ones = np.ones((len(a), 1), dtype=np.float32)
    return np.concatenate([a, np.einsum("id,id->i", a, a)[:, None], ones], axis=1)


def _lifted_known(b: Floats) -> NDArray[np.float32]:
    """Columns (d + 2, m): the other half of `_lifted`."""
    squares = np.einsum("id,id->i", b, b)
    return np.vstack([-10.0 * b.T, np.full(len(b), 5.0), 5.0 * squares]).astype(np.float32)


def _fast_matern52(squares: NDArray[np.float32], log_variance: float) -> NDArray[np.float32]:
    """The kernel from five times the squared distances, in few passes; overwrites `squares`."""
    np.maximum(squares, np.float32(1e-12), out=squares)
    r = np.sqrt(squares)
    squares *= np.float32(1.0 / 3.0)
    squares += r
    squares += np.float32(1.0)
    np.subtract(np.float32(log_variance), r, out=r)
    np.exp(r, out=r)
    squares *= r
    return squares


def _take(x: NDArray[np.float32], columns: NDArray[np.intp]) -> NDArray[np.float32]:
    """The columns, without a copy where they are neighbours."""
    if len(columns) == columns[-1] - columns[0] + 1:
        return x[:, columns[0] : columns[-1] + 1]
    return x[:, columns]


class AdditiveGP:
    """`fit(x, y)` and `predict(x) -> mean, std` on standardised columns x (n, d); y (n,) of any scale."""

    def __init__(self, terms: Sequence[Term], *, max_iterations: int = 40, seed: int = 0) -> None:
        self._terms = tuple(terms)
        self._max_iterations = max_iterations
        self._seed = seed

    def fit(self, x: Floats, y: Floats) -> Self:
        self._center = float(y.mean())
        self._unit = float(y.std()) or 1.0
        target = (y - self._center) / self._unit
        rows = np.arange(len(y))
        if len(y) > _MAX_ROWS_TUNING:
            rows = np.random.default_rng(self._seed).choice(len(y), _MAX_ROWS_TUNING, replace=False)
        theta = self._tune(x[rows], target[rows])
        self._noise, self._kernels = self._unpack(theta)
        covariance = self._covariance(x) + (self._noise + _JITTER) * np.eye(len(y))
        factor = cho_factor(covariance, lower=True)
        inverse = cho_solve(factor, np.eye(len(y)))
        alpha = inverse @ target
        # leave-one-out in closed form (Rasmussen & Williams 2006, equations 5.10-5.12)
        self.loo_mean = y - self._unit * alpha / np.diag(inverse)
        self.loo_std = self._unit / np.sqrt(np.diag(inverse))
        self._prepare(x, alpha)
        return self

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,) of a new observation, noise included."""
        cross = self._cross(x)
        mean = self._center + self._unit * (cross @ self._alpha).astype(np.float64)
        seen = cross[:, : len(self._whiten)] @ self._whiten
        left = np.maximum(self._prior_variance - np.einsum("ij,ij->i", seen, seen), 0.0)
        return mean, self._unit * np.sqrt(self._noise + left.astype(np.float64))

    def believing(self, x: Floats) -> "AdditiveGP":
        """The same process as if observations at x (m, d) had come out as it predicts: means stay, it is surer there.

        "Kriging believer" (Ginsbourger, Le Riche & Carraro 2010). Nothing is fitted again.
        """
        known = copy.copy(self)
        known._known = [np.hstack([new, old]) for new, old in zip(self._columns(x), self._known, strict=True)]
        known._alpha = np.concatenate([np.zeros(len(x), dtype=np.float32), self._alpha])
        known._carrying = np.concatenate([x, self._carrying])
        known._whiten = self._whitening(known._carrying)
        return known

    def _prepare(self, x: Floats, alpha: Floats) -> None:
        order = np.random.default_rng(self._seed).permutation(len(x))  # the first rows carry the variance
        self._known = self._columns(x[order])
        self._alpha = alpha[order].astype(np.float32)
        self._prior_variance = float(sum(np.exp(kernel.log_variance) for kernel in self._kernels))
        self._carrying = x[order[:_MAX_ROWS_VARIANCE]]
        self._whiten = self._whitening(self._carrying)

    def _columns(self, x: Floats) -> list[NDArray[np.float32]]:
        """What `_cross` needs to know of rows (n, d), for each term."""
        return [
            _lifted_known(kernel.scaled(x[:, term.columns]))
            for kernel, term in zip(self._kernels, self._terms, strict=True)
        ]

    def _whitening(self, x: Floats) -> NDArray[np.float32]:
        lower = np.linalg.cholesky(self._covariance(x) + (self._noise + _JITTER) * np.eye(len(x)))
        return np.asarray(solve_triangular(lower, np.eye(len(x)), lower=True).T, dtype=np.float32)

    def _cross(self, x: Floats) -> NDArray[np.float32]:
        """Covariances (n, training rows) of candidates and training rows, in single precision for speed."""
        total = np.zeros((len(x), len(self._alpha)), dtype=np.float32)
        narrow = x.astype(np.float32)
        step = max(32, _CACHED_ENTRIES // len(self._alpha))
        for kernel, term, known in zip(self._kernels, self._terms, self._known, strict=True):
            seen = _lifted(_take(narrow, term.columns) * kernel.inverse_scale.astype(np.float32))
            for start in range(0, len(x), step):
                part = slice(start, start + step)
                total[part] += _fast_matern52(seen[part] @ known, kernel.log_variance)
        return total

    def _covariance(self, x: Floats) -> Floats:
        total = np.zeros((len(x), len(x)))
        for kernel, term in zip(self._kernels, self._terms, strict=True):
            a = kernel.scaled(x[:, term.columns])
            total += _matern52(_sq_distances(a, a), float(np.exp(kernel.log_variance)))[0]
        return total

    def _unpack(self, theta: Floats) -> tuple[float, list[_Kernel]]:
        kernels, at = [], 1
        for term in self._terms:
            scales = theta[at + 1 : at + 1 + term.n_scales]
            kernels.append(_Kernel(float(theta[at]), np.exp(-scales)[term.scales]))
            at += 1 + term.n_scales
        return float(np.exp(theta[0])), kernels

    def _tune(self, x: Floats, y: Floats) -> Floats:
        center, width = [-2.0], [1.0]
        for term in self._terms:
            center += [0.0 if len(self._terms) == 1 else -0.7, *[0.5 * np.log(len(term.columns)) + 0.5] * term.n_scales]
            width += [1.0, *[0.7 if term.n_scales <= 2 else 1.0] * term.n_scales]
        mu, sd = np.array(center), np.array(width)
        views = [x[:, term.columns] for term in self._terms]

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, gradient = self._negative_log_likelihood(theta, views, y)
            off = (theta - mu) / sd
            return value + 0.5 * float(off @ off), gradient + off / sd

        found = minimize(objective, mu, jac=True, method="L-BFGS-B", options={"maxiter": self._max_iterations})
        return np.asarray(found.x, dtype=np.float64)

    def _negative_log_likelihood(self, theta: Floats, views: list[Floats], y: Floats) -> tuple[float, Floats]:
        noise, kernels = self._unpack(theta)
        parts = []
        covariance = (noise + _JITTER) * np.eye(len(y))
        for kernel, view in zip(kernels, views, strict=True):
            scaled = kernel.scaled(view)
            variance = float(np.exp(kernel.log_variance))
            k, r = _matern52(_sq_distances(scaled, scaled), variance)
            parts.append((scaled, k, variance * (5.0 / 3.0) * (1.0 + r) * np.exp(-r)))
            covariance += k
        if not np.isfinite(covariance).all():  # a step of the optimiser beyond what floats hold
            return 1e10, np.zeros_like(theta)
        try:
            factor = cho_factor(covariance, lower=True)
        except LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve(factor, np.eye(len(y)))
        alpha = inverse @ y
        value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor[0])).sum())
        outer = 0.5 * (inverse - np.outer(alpha, alpha))
        gradient = [noise * float(np.trace(outer))]
        for term, (scaled, k, slope) in zip(self._terms, parts, strict=True):
            gradient.append(float((outer * k).sum()))
            weight = outer * slope
            per_column = 2.0 * (weight.sum(1) @ (scaled * scaled) - np.einsum("id,id->d", scaled, weight @ scaled))
            gradient += np.bincount(term.scales, per_column, term.n_scales).tolist()
        return value, np.array(gradient)
