"""Estimators by name: one contract, honest failures, and a rule that explains itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nas.errors import UnknownNameError, UserError
from nas.evaluation.estimate import agreement
from nas.evaluation.estimators import (
    ESTIMATORS,
    EstimatorSetting,
    ZeroCostEstimator,
    choose_estimator,
    make_estimator,
)
from nas.evaluation.short_training import ShortTraining
from nas.evaluation.supernet.config import SupernetConfig, supernet_recipe
from nas.tasks import TASKS
from nas.tasks.classification.task import counting_std
from search_spaces import Architecture
from tests.nas.evaluation.small import coloured_images, small_space

DATA = coloured_images()
SPACE = small_space("dense")
RECIPE = TASKS["classification"].recipe(epochs=1, batch_size=16, precision="fp32")


def some(count: int, seed: int = 0) -> list[Architecture]:
    return [SPACE.architecture(row) for row in SPACE.sample(count, np.random.default_rng(seed))]


def setting(**changes: object) -> EstimatorSetting:
    labels = [(arch, 0.5 + 0.01 * at) for at, arch in enumerate(some(12, seed=5))]
    config = SupernetConfig(steps=2, recipe=supernet_recipe(RECIPE).changed(batch_size=16))
    base = EstimatorSetting(
        space=SPACE, data=DATA, short=lambda arch: ShortTraining(RECIPE), supernet=config, labels=labels, device="cpu"
    )
    return replace(base, **changes)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_keeps_the_contract(name: str) -> None:
    estimator = make_estimator(name, setting())
    archs = some(3)
    found = estimator.estimate(archs)
    assert [e.arch for e in found] == archs
    assert estimator.unit in ("accuracy", "standard deviations")
    assert estimator.prepared_s >= 0
    for estimate in found:
        assert estimate.failure is None
        assert estimate.value is not None
        assert np.isfinite(estimate.value)
        assert estimate.seconds > 0
        if estimator.unit == "accuracy":
            assert estimate.interval is not None
            assert estimate.std is not None
            assert 0 <= estimate.interval[0] < estimate.interval[1] <= 1
            assert estimate.std > 0
    assert estimator.estimate([]) == []


def test_an_unknown_estimator_is_named() -> None:
    with pytest.raises(UnknownNameError, match="supernett"):
        make_estimator("supernett", setting())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_labels_out_of_range_are_named_before_anything_is_spent(name: str) -> None:
    with pytest.raises(UserError, match="label 2 is out of range: there are 2 classes"):
        make_estimator(name, setting(data=replace(DATA, classes=("a", "b"))))


def test_a_short_training_that_diverges_is_a_recorded_failure() -> None:
    wild = ShortTraining(
        RECIPE.changed(optimizer={"lr": 1e9}, epochs=2, schedule={"warmup_fraction": 0.0}, clip_norm=1e9)
    )
    estimate = make_estimator("short", setting(short=lambda arch: wild)).estimate(some(1))[0]
    assert (estimate.value, estimate.failure) == (None, "training diverged")


def test_a_supernet_that_diverged_is_a_recorded_failure(tmp_path: Path) -> None:
    config = SupernetConfig(
        steps=20,
        recipe=supernet_recipe(RECIPE).changed(
            batch_size=16, optimizer={"lr": 1e30}, schedule={"warmup_fraction": 0.0}
        ),
    )
    estimator = make_estimator("supernet", setting(supernet=config, checkpoint=tmp_path / "s.safetensors"))
    estimate = estimator.estimate(some(1))[0]
    assert estimate.value is None
    assert estimate.failure is not None
    assert estimate.failure.startswith("the supernet diverged at step ")


def test_zero_cost_of_a_batch_of_one_class_still_scores() -> None:
    one = replace(DATA, train=DATA.train.take(np.flatnonzero(DATA.train.labels == 1)))
    estimator = ZeroCostEstimator(SPACE, one, reference=3)
    found = estimator.estimate(some(3))
    assert all(e.failure is None for e in found)  # synflow and naswot need no labels
    assert [e.value for e in found] == [estimator.estimate([e.arch])[0].value for e in found]


def test_agreement_says_what_parameters_alone_would_have() -> None:
    found = agreement([0.1, 0.2, None, 0.4, 0.5], [0.2, 0.3, 0.9, 0.5, None], [3.0, 2.0, 9.0, 1.0, 1.0])
    assert (found.kendall_tau, found.n, found.params_tau) == (1.0, 3, -1.0)
    assert agreement([0.1], [0.2], [1.0]).kendall_tau is None
    assert agreement([0.1, 0.1], [0.2, 0.3], [1.0, 2.0]).kendall_tau is None
    with pytest.raises(UserError, match="do not belong together"):
        agreement([0.1], [0.2, 0.3], [1.0])


def test_counted_accuracies_are_never_certain() -> None:
    assert counting_std(1.0, 100) > 0
    assert counting_std(0.5, 100) == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize(
    ("budget_s", "short_s", "labels", "expected"),
    [
        (40, 15.0, 0, "short"),  # zero-cost scores order networks no better than their MACs
        (12, 5.0, 20, "predictor"),  # hardly any time, but there are labels
        (12, 5.0, 3, "short"),  # too few to learn from, and no other values beside those of short trainings
        (60, 5.0, 0, "short"),
        (60, 5.0, 20, "short"),
        (1000, 50.0, 0, "short"),  # nor does a supernet, however much time there is
    ],
)
def test_auto_trains_briefly_unless_time_says_otherwise(
    budget_s: float, short_s: float, labels: int, expected: str
) -> None:
    name, why = choose_estimator(budget_s, "2 threads", short_s=short_s, labels=labels)
    assert name == expected
    assert name in ESTIMATORS
    assert f"{budget_s} s for estimates on 2 threads" in why
    assert f"{int(budget_s / short_s)} short trainings" in why
