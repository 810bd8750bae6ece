"""Recipes for `nas finetune` by name: those of every bundled task, and the ones that they inherit from."""

from collections.abc import Sequence
from typing import Any

from nas.tasks import TASKS
from nas.tasks.task import Task
from nas.training.recipe import Recipe
from nas.training.recipe_files import load_recipe, shared_recipes


def bundled_recipes(task: Task[Any, Any] | None = None) -> dict[str, str]:
    """Name -> YAML text, sorted by name; those that are only inherited from begin with `base`.

    Args:
        task: one whose recipes are among them, also where it is not in `TASKS`.
    """
    tasks = [*TASKS.values(), *([task] if task is not None else [])]
    found = shared_recipes()
    for each in tasks:
        found.update(each.recipes)
    return dict(sorted(found.items()))


def recipe_named(name_or_file: str, overrides: Sequence[str] = (), task: Task[Any, Any] | None = None) -> Recipe:
    """The recipe of that name among `bundled_recipes(task)`, or in a `.yaml` file; see `load_recipe`."""
    return load_recipe(name_or_file, overrides, bundled=bundled_recipes(task))
