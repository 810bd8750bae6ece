"""Recipes as files: inheritance, overrides, and every refusal in one sentence."""

from pathlib import Path

import pytest
import yaml

from nas.cli.main import run
from nas.errors import UnknownNameError, UserError
from nas.tasks.recipes import bundled_recipes, recipe_named
from nas.training.recipe_files import load_recipe, merged, to_yaml


@pytest.mark.parametrize("name", bundled_recipes())
def test_bundled_recipes_say_what_they_are_and_print_as_files(name: str, tmp_path: Path) -> None:
    recipe = recipe_named(name)
    assert recipe.description
    (tmp_path / "copy.yaml").write_text(to_yaml(recipe))
    assert load_recipe(str(tmp_path / "copy.yaml")) == recipe


def test_bundled_names() -> None:
    wanted = {"classification-fast", "classification", "classification-distill", "classification-qat", "base"}
    assert wanted <= set(bundled_recipes())


def test_sections_are_merged_and_the_rest_replaced() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2]}) == {"a": {"x": 1, "y": 3}, "b": [2]}


def test_files_inherit_from_bundled_recipes_and_files_beside_them(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("inherits: base\nepochs: 3\noptimizer: {lr: 0.5}\n")
    (tmp_path / "more.yaml").write_text("inherits: mine.yaml\noptimizer: {momentum: 0.5}\n")
    recipe = load_recipe(str(tmp_path / "more.yaml"), ["ema_decay=null", "schedule.name=step", "qat.lr=1e-4"])
    base = load_recipe("base")
    assert (recipe.epochs, recipe.optimizer.lr, recipe.optimizer.momentum) == (3, 0.5, 0.5)
    assert recipe.optimizer.weight_decay == base.optimizer.weight_decay
    assert (recipe.ema_decay, recipe.schedule.name, recipe.qat.lr) == (None, "step", 1e-4)


def test_a_cycle_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("inherits: two.yaml")
    (tmp_path / "two.yaml").write_text("inherits: one.yaml")
    with pytest.raises(UserError, match="one -> two -> one"):
        load_recipe(str(tmp_path / "one.yaml"))


@pytest.mark.parametrize(
    ("override", "named", "nearest"),
    [
        ("epoch=3", "'epoch'", "'epochs'"),
        ("inherit=base", "'inherit'", "'inherits'"),
        ("optimizer.learnrate=3", "'optimizer.learnrate'", "'optimizer.lr'"),
        ("distillation.temprature=3", "'distillation.temprature'", "'distillation.temperature'"),
    ],
)
def test_a_misspelt_key_is_named_with_the_nearest(override: str, named: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_recipe("base", [override])
    assert named in str(caught.value)
    assert nearest in str(caught.value.hint)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epochs=-1", "epochs = -1"),
        ("epochs=many", "epochs = 'many'"),
        ("optimizer.lr=0", "optimizer.lr = 0"),
        ("optimizer=3", "optimizer = 3"),
        ("batch_size=1", "batch_size = 1"),
        ("checkpoints.deliver=average", "needs average_epochs"),
        ("epochs", "'epochs' is no setting"),
        ("inherits=base", "only a file can inherit"),
        ("epochs=[", "not YAML"),
        ("epochs=0x_", "not YAML"),
        ("description=2024-13-45", "not YAML"),
        ("channels_last=!!bool x", "not YAML"),
        ("seed=18446744073709551616", "seed = 18446744073709551616"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("base", [override])
    assert message in str(caught.value)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [("draws=stream", "needs draws: step"), ("growing_size=[{until: 0.5, scale: 0.5}]", "leave out growing_size")],
)
def test_what_comes_again_cannot_be_different(setting: str, message: str) -> None:
    assert load_recipe("base", ["distillation.views=2"]).distillation.views == 2
    with pytest.raises(UserError, match=message):
        load_recipe("base", ["distillation.views=2", setting])


@pytest.mark.parametrize(
    "text", ["- 1", "epochs: [", "inherits: 3", "inherits: bose", "\x00", "? [a]\n: 1", "epochs: 0x_"]
)
def test_a_file_that_is_no_recipe_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError):
        load_recipe(str(tmp_path / "bad.yaml"))
    with pytest.raises(UserError, match="cannot read"):
        load_recipe(str(tmp_path / "none.yaml"))


def test_a_setting_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("epochs: 3\noptimizer:\n  lr: 0.1\n  momentum: 0.5\n  lr: 0.2\n")
    with pytest.raises(UserError, match=r"'lr' is there twice \(line 5\)"):
        load_recipe(str(tmp_path / "twice.yaml"))


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in bundled_recipes())
    assert run(["recipes", "show", "classification-fast", "--set", "epochs=7"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["epochs"] == 7
    assert run(["recipes", "show", "classification-fst"]) == 1
    assert "did you mean 'classification-fast'" in capsys.readouterr().err
