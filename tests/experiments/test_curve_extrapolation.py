"""Extrapolation of learning curves: intervals that hold on curves of another family, and stopping."""

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.curve_extrapolation import CurveExtrapolator, StopBadOnes
from nas.data import ImageSplit, RawImages
from nas.data.splits import complete
from nas.errors import UserError
from nas.evaluation.short_training import ShortTraining, trained
from nas.networks.description import NetworkDescription
from nas.tasks import TASKS
from search_spaces import load_search_space
from tests.nas.training.records import epoch_record

EPOCHS = 12


def curves(n: int, seed: int, epochs: int = EPOCHS) -> NDArray[np.float64]:
    """Hill functions, which the prior does not contain; one in five learns late and overtakes the others."""
    rng = np.random.default_rng(seed)
    when = np.arange(1, epochs + 1)[None]
    end = rng.uniform(0.4, 0.9, (n, 1))
    late = rng.random((n, 1)) < 0.2
    half = np.where(late, 6.0, rng.uniform(1.0, 3.0, (n, 1)))
    clean = 0.1 + (end - 0.1) * when**1.5 / (when**1.5 + half**1.5) + np.where(late, 0.1 * when / epochs, 0.0)
    noisy: NDArray[np.float64] = np.clip(clean + 0.01 * rng.standard_normal((n, epochs)), 0, 1)
    return noisy


def covered(extrapolator: CurveExtrapolator, test: NDArray[np.float64], k: int) -> float:
    intervals = np.array([extrapolator.predict(curve[:k]).interval(0.9) for curve in test])
    return float(np.mean((intervals[:, 0] <= test[:, -1]) & (test[:, -1] <= intervals[:, 1])))


def error(extrapolator: CurveExtrapolator, test: NDArray[np.float64], k: int) -> float:
    return float(np.mean([abs(extrapolator.predict(curve[:k]).median - curve[-1]) for curve in test]))


@pytest.mark.parametrize("k", [2, 4, 8])
def test_intervals_hold_after_some_finished_curves(k: int) -> None:
    learned = [CurveExtrapolator(EPOCHS).fit(curves(40, seed).tolist()) for seed in range(4)]
    assert np.mean([covered(one, curves(200, seed + 100), k) for seed, one in enumerate(learned)]) >= 0.86


def test_intervals_shrink_with_epochs_and_with_finished_curves() -> None:
    def width(extrapolator: CurveExtrapolator, k: int) -> float:
        return float(np.mean([np.ptp(extrapolator.predict(curve[:k]).interval()) for curve in curves(50, seed=8)]))

    prior, learned = CurveExtrapolator(EPOCHS).fit(), CurveExtrapolator(EPOCHS).fit(curves(60, seed=9).tolist())
    assert width(learned, 8) < 0.5 * width(learned, 2)
    assert width(learned, 4) < 0.75 * width(prior, 4)


def test_the_prior_alone_is_not_overconfident() -> None:
    assert covered(CurveExtrapolator(EPOCHS).fit(), curves(300, seed=1), k=4) >= 0.85


def test_more_epochs_and_more_finished_curves_tell_more() -> None:
    test = curves(200, seed=2)
    prior, learned = CurveExtrapolator(EPOCHS).fit(), CurveExtrapolator(EPOCHS).fit(curves(60, seed=3).tolist())
    assert error(learned, test, 4) < error(prior, test, 4)
    assert error(learned, test, 8) < error(learned, test, 2)
    last_value = float(np.mean(np.abs(test[:, 3] - test[:, -1])))
    assert error(learned, test, 4) < 0.5 * last_value


def test_learns_curves_that_cross() -> None:
    """In this recipe who starts fast ends low: what no power law says, and finished curves do."""
    rng = np.random.default_rng(4)
    start = rng.uniform(0.2, 0.5, (40, 1))
    when = np.linspace(0, 1, EPOCHS)[None]
    crossing = start * (1 - when) + (1.0 - start) * when + 0.005 * rng.standard_normal((40, EPOCHS))
    extrapolator = CurveExtrapolator(EPOCHS).fit(crossing[:30].tolist())
    predicted = [extrapolator.predict(curve[:2]).median for curve in crossing[30:]]
    assert np.corrcoef(predicted, crossing[30:, -1])[0, 1] > 0.8


def test_a_finished_curve_is_its_own_end() -> None:
    final = CurveExtrapolator(3).fit().predict([0.3, 0.5, 0.6])
    assert final.median == pytest.approx(0.6)
    assert final.interval() == pytest.approx((0.6, 0.6), abs=1e-4)
    assert final.chance_above(0.59) > 0.99
    assert final.chance_above(0.61) < 0.01


def test_refit_forgets_and_the_same_seed_gives_the_same() -> None:
    reused = CurveExtrapolator(EPOCHS).fit(curves(20, seed=5).tolist()).fit()
    assert reused.predict([0.2, 0.4]) == CurveExtrapolator(EPOCHS).fit().predict([0.2, 0.4])


def test_one_epoch_trainings_work() -> None:
    assert CurveExtrapolator(1).fit([[0.4], [0.5]]).predict([0.45]).median == pytest.approx(0.45)


def stopped_after(callback: StopBadOnes, curve: NDArray[np.float64]) -> int | None:
    for epoch, accuracy in enumerate(curve.tolist(), start=1):
        if callback(epoch_record(epoch, accuracy)):
            return epoch
    return None


def test_bad_ones_are_stopped_and_the_best_are_not() -> None:
    extrapolator = CurveExtrapolator(EPOCHS).fit(curves(40, seed=6).tolist())
    test = curves(200, seed=7)
    target = float(np.sort(test[:, -1])[-20])
    epochs = [stopped_after(StopBadOnes(extrapolator, target), curve) for curve in test]
    good = test[:, -1] >= target
    lost = [e is not None and e < EPOCHS for e, is_good in zip(epochs, good, strict=True) if is_good]
    assert np.mean(lost) <= 0.2
    assert np.mean([EPOCHS if e is None else e for e in epochs]) < 0.6 * EPOCHS


def test_a_stopped_training_has_a_label() -> None:
    callback = StopBadOnes(CurveExtrapolator(4).fit(), target=0.999, min_epochs=2)
    assert not callback(epoch_record(1, 0.2))
    assert callback(epoch_record(2, 0.25))
    assert callback.predicted is not None
    assert 0.2 < callback.predicted.median < 0.999


def test_ends_a_real_short_training() -> None:
    rng = np.random.default_rng(0)
    noise = [ImageSplit(rng.integers(0, 255, (n, 32, 32, 3)).astype(np.uint8), np.arange(n) % 2) for n in (16, 16, 16)]
    data = complete("noise", RawImages(("a", "b"), *noise), seed=0)
    space = load_search_space("mobile").restrict("resolution", [32])
    description = NetworkDescription.of_architecture(space, space.architecture([0] * len(space.decisions)), (2,))
    callback = StopBadOnes(CurveExtrapolator(6, classes=2).fit(), target=0.999)
    short = ShortTraining(TASKS["classification"].recipe(epochs=6, batch_size=16, precision="fp32"))
    _, result = trained(description, data, short, callback)
    assert result.stopped == "pruned by callback"
    assert 2 <= len(result.curve) < 6
    assert callback.predicted is not None


@pytest.mark.parametrize("bad", [[], [0.1] * (EPOCHS + 1), [float("nan")], [0.2, 1.2], [-0.1]])
def test_what_is_no_curve_is_refused(bad: list[float]) -> None:
    with pytest.raises(UserError, match="curve"):
        CurveExtrapolator(EPOCHS).fit().predict(bad)


@pytest.mark.parametrize("bad", [[[0.5] * 3], [[float("nan")] * EPOCHS]])
def test_curves_to_learn_from_are_checked(bad: list[list[float]]) -> None:
    with pytest.raises(UserError, match="curve"):
        CurveExtrapolator(EPOCHS).fit(bad)
