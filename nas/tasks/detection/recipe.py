"""Settings of recipes that make sense for detection."""

from typing import TYPE_CHECKING

from nas.errors import UserError

if TYPE_CHECKING:
    from nas.training.recipe import Recipe


def check_recipe(recipe: "Recipe") -> None:
    """Raises `UserError` for a setting that has no meaning for images with boxes."""
    augmentation = recipe.augmentation
    if recipe.qat.epochs:
        raise UserError(
            f"quantisation-aware training (qat.epochs = {recipe.qat.epochs}) is for classification",
            "take a recipe for detection: int8 detectors are calibrated after training, and `nas export` leaves their "
            "last layers in floating point where int8 loses too much",
        )
    used = {
        "label_smoothing": recipe.label_smoothing,
        "augmentation.randaugment_ops": augmentation.randaugment_ops,
        "augmentation.erasing_probability": augmentation.erasing_probability,
        "augmentation.mixup_alpha": augmentation.mixup_alpha,
        "augmentation.cutmix_alpha": augmentation.cutmix_alpha,
        "distillation.features_weight": recipe.distillation.features_weight,
    }
    for name, value in used.items():
        if value:
            raise UserError(
                f"the setting {name} = {value} is for classification", f"set {name}=0, or take a recipe for detection"
            )
