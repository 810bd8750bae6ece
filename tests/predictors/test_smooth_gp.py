"""The small Gaussian process, against scikit-learn's and against itself with a point left out."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from predictors.smooth_gp import SmoothGp


def data(n: int, seed: int, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3))
    return x, 2 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + noise * rng.standard_normal(n)


def test_predicts_as_scikit_learn_with_the_same_kernel() -> None:
    (x, y), (unseen, _) = data(60, 0), data(5000, 1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    ours = SmoothGp().fit(x, y)
    kernel = ConstantKernel(ours._variance) * Matern(ours._length, nu=2.5) + WhiteKernel(ours._variance * ours._noise)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(x, y - y.mean())
    mean, std = theirs.predict(unseen, return_std=True)
    found = ours.predict(unseen)
    assert found[0] == pytest.approx(mean + y.mean(), abs=1e-8)
    assert found[1] == pytest.approx(std, rel=1e-6)


def test_left_out_values_are_what_a_fit_without_the_point_says() -> None:
    x, y = data(40, 2)
    whole = SmoothGp().fit(x, y)
    # The constant mean and the scales come from all points, so agreement is close, not exact.
    without = SmoothGp().fit(np.delete(x, 7, axis=0), np.delete(y, 7), like=whole)
    assert whole.left_out_[7] == pytest.approx(without.predict(x[7:8])[0][0], abs=0.1)


def test_learns_and_is_honest() -> None:
    (x, y), (unseen, truth) = data(150, 3), data(1000, 4)
    mean, std = SmoothGp().fit(x, y).predict(unseen)
    assert np.corrcoef(mean, truth)[0, 1] > 0.95
    assert 0.8 < (np.abs(mean - truth) <= 1.645 * std).mean() <= 0.99


def test_a_constant_feature_and_a_constant_target_are_no_trouble() -> None:
    x, y = data(20, 5)
    x[:, 2] = 3.0
    assert np.isfinite(SmoothGp().fit(x, y).predict(x + 1)[0]).all()
    mean, std = SmoothGp().fit(x, np.full(20, 1.5)).predict(x)
    assert mean == pytest.approx(np.full(20, 1.5))
    assert (std < 1e-3).all()
