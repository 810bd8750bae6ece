"""The table of ingredients: variants are settings of recipes, and what is known is not trained again."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.recipe_ablation import OUTSET, VARIANTS, main, parsed, table
from nas.tasks.recipes import recipe_named
from nas.training.recipe import merged


def test_every_variant_is_a_recipe() -> None:
    recipes = [recipe_named("base").changed(**merged(OUTSET, settings)) for settings in VARIANTS.values()]
    assert len({recipe.model_dump_json() for recipe in recipes}) == len(VARIANTS)
    assert parsed("low: optimizer.lr=0.1 batch_size=64") == ("low", {"optimizer": {"lr": 0.1}, "batch_size": 64})


def test_the_table_shows_gains_over_the_first_variant() -> None:
    rows = {
        "d | n | a | 4 epochs | seed 0": {"val": 80.0, "cpu_s": 10.0},
        "d | n | a | 4 epochs | seed 1": {"val": 82.0, "cpu_s": 12.0},
        "d | n | b | 4 epochs | seed 0": {"val": 84.0, "cpu_s": 20.0},
    }
    assert table(rows).splitlines()[2:] == [
        "| d | n | a | 4 | 2 | 81.0 | +0.0 | 11 |",
        "| d | n | b | 4 | 1 | 84.0 | +3.0 | 20 |",
    ]


@pytest.mark.slow
def test_what_is_known_is_not_trained_again(tmp_path: Path) -> None:
    out = tmp_path / "ablation.json"
    command = ["--data", "digits", "--network", "compact#2@32", "--variant", "muon", "--epochs", "1", "--out", str(out)]
    first = CliRunner().invoke(main, command, catch_exceptions=False)
    rows = json.loads(out.read_text())
    assert list(rows) == ["digits | compact#2@32 | muon | 1 epochs | seed 0"]
    assert CliRunner().invoke(main, command, catch_exceptions=False).stdout == first.stdout
    assert json.loads(out.read_text()) == rows
