"""Settings of recipes that make sense for classification."""

from typing import TYPE_CHECKING

from nas.errors import UserError

if TYPE_CHECKING:
    from nas.training.recipe import Recipe


def check_recipe(recipe: "Recipe") -> None:
    """Raises `UserError` for a setting that only detection has."""
    if recipe.augmentation.crop == "mosaic":
        raise UserError("the setting augmentation.crop = mosaic is for detection", "set augmentation.crop=light")
