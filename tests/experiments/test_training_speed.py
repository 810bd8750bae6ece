"""The loop beside bare ones: that all of them train the same batches, and what the figures say."""

import pytest

from experiments.training_speed import Round, Speed, compare
from nas.training.setup import Setup

SETUP = Setup(precision="fp32", channels_last=False, batch_size=12)


def test_ratios_are_medians_of_rounds_side_by_side() -> None:
    rounds = {"loop": [(100.0, 2.0), (50.0, 4.0), (90.0, 2.0)], "bare": [(100.0, 1.0), (100.0, 1.0), (100.0, 1.0)]}
    speed = Speed(
        setup=SETUP, rounds={name: [Round(*pair) for pair in pairs] for name, pairs in rounds.items()},
        data_wait_share=0.012,
    )  # fmt: skip
    assert speed.ratio("bare") == 0.9
    assert speed.core_ratio("bare") == 0.5
    assert "waiting for data 1.2 %" in str(speed)
    assert "| bare | 100 | 0.900 | 1.00 | 0.500 |" in str(speed)


@pytest.mark.slow
def test_all_loops_run() -> None:
    settings = ["precision=fp32", "channels_last=no", "batch_size=12"]
    speed = compare("resnet10_w50", 32, images=24, recipe="base", overrides=settings, rounds=2)
    assert speed.setup == SETUP
    assert {name: len(rounds) for name, rounds in speed.rounds.items()} == {"loop": 2, "bare": 2, "inline": 2}
    assert all(r.images_per_s > 0 and r.core_ms_per_image > 0 for rounds in speed.rounds.values() for r in rounds)
    assert 0 <= speed.data_wait_share < 1
