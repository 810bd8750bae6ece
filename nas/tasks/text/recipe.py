"""Settings of recipes that make sense for texts."""

from typing import TYPE_CHECKING

from nas.errors import UserError

if TYPE_CHECKING:
    from nas.training.recipe import Recipe


def check_recipe(recipe: "Recipe") -> None:
    """Raises `UserError` for a setting that only images have."""
    changes = recipe.augmentation
    wrong = {
        "augmentation.crop": (changes.crop, "none"),
        "augmentation.randaugment_ops": (changes.randaugment_ops, 0),
        "augmentation.mixup_alpha": (changes.mixup_alpha, 0.0),
        "augmentation.cutmix_alpha": (changes.cutmix_alpha, 0.0),
        "growing_size": (recipe.growing_size, ()),
        "qat.epochs": (recipe.qat.epochs, 0),
    }
    for name, (value, none) in wrong.items():
        if value != none:
            shown = list(none) if isinstance(none, tuple) else none
            raise UserError(f"the setting {name} = {value} is for images", f"set {name}={shown}")
