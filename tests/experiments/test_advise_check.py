"""What the check of advice concludes from its figures."""

import numpy as np
import pytest

from experiments.advise_check import Change, Sum, changes_text, random_architectures, rank_correlation, sums_text
from search_spaces import space_of


def one_sum(ratio: float, unassigned: float = 0.0, network: str = "a", **block_ms: float) -> Sum:
    return Sum(
        network=network, deployment="openvino-fp32", sum_over_p50=ratio, blocks_over_p50=ratio - 0.15,
        unassigned_share=unassigned, disturbed=False, block_ms=block_ms or {"x": 1.0, "y": 2.0, "z": 3.0},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "unassigned", "right"), [(1.0, 0.0, True), (0.89, 0.0, False), (1.21, 0.0, False), (1.0, 0.06, False)]
)
def test_a_sum_is_right_within_bounds(ratio: float, unassigned: float, right: bool) -> None:
    assert one_sum(ratio, unassigned).is_right is right


def test_sums_are_counted_by_deployment() -> None:
    text = sums_text([one_sum(1.0), one_sum(2.0, network="b")], [one_sum(1.0, x=3.0, y=2.0, z=1.0)])
    assert "| openvino-fp32 | 2 | 1 | 1.50 | 1.00 | 2.00 | 0, 1.35 | 0.0% | 0 |" in text
    assert "rank correlation -1.000" in text


def test_the_same_order_correlates() -> None:
    assert rank_correlation(one_sum(1.0), one_sum(1.0, x=10.0, y=20.0, z=30.0)) == pytest.approx(1)


def test_changes_are_judged() -> None:
    def change(predicted: float, measured: float, *, is_best: bool) -> Change:
        return Change(
            network="a", change="", is_best=is_best, d_macs=0, predicted_ms=predicted, low_ms=predicted - 0.1,
            high_ms=predicted + 0.1, measured_ms=measured, before_ms=2.0,
        )  # fmt: skip

    text = changes_text([change(1.0, 1.05, is_best=True), change(0.5, -1.0, is_best=False)])
    assert "sign right: 50%" in text
    assert "within the 90 % interval: 50%" in text
    assert "equal MACs: 1 of 1" in text


def test_random_networks_are_of_all_spaces_and_repeatable() -> None:
    first, again = (list(random_architectures(6, 7)) for _ in range(2))
    assert first == again
    assert len({space_of(arch).name for arch in first}) == 3
    assert len({arch.key for arch in first}) == 6
    assert np.unique([space_of(a).parameters(a)["resolution"] for a in first]).tolist() == [128]
