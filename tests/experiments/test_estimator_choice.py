"""What `auto` counts: docs/accuracy.md shows what the code says today."""

from pathlib import Path

import pytest

from experiments.estimator_choice import recipes, row

PAGE = Path(__file__).parents[2] / "docs/accuracy.md"


@pytest.mark.parametrize(
    ("images", "pixels", "budget_s", "chosen"),
    [(1300, 32, 150.0, "short"), (1300, 32, 14400.0, "short"), (7000, 128, 14400.0, "short")],
)
def test_the_page_shows_what_the_rule_counts(images: int, pixels: int, budget_s: float, chosen: str) -> None:
    line = row(recipes(images, pixels, budget_s, slowness=1.0, threads=2))
    assert line in PAGE.read_text()
    assert line.endswith(f"| `{chosen}` |")


def test_a_host_that_trains_slowly_counts_fewer_trainings() -> None:
    usual, slow = (int(row(recipes(1300, 32, 14400.0, s, 2)).split("|")[4].split(",")[0]) for s in (1.0, 4.0))
    assert 0 < slow < usual
