"""The images of a fine-tuning."""

from dataclasses import dataclass

from nas.data.images import ImageSplit, Preprocess, SplitName
from nas.errors import UserError
from nas.tasks import TaskData
from nas.tasks.detection.data.values import DetectionSplit
from nas.training.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """What a training sees, at the network's resolution."""

    train: ImageSplit | DetectionSplit
    val: ImageSplit | DetectionSplit
    test: ImageSplit | DetectionSplit
    preprocess: Preprocess
    num_classes: int
    flip_ok: bool

    def __post_init__(self) -> None:
        for name, split, needed in (("training", self.train, 2), ("validation", self.val, 1)):
            if len(split) < needed:
                raise UserError(
                    f"there are {len(split)} {name} images", f"give data with at least {needed} {name} images"
                )


def images_of(data: TaskData, resolution: int, recipe: Recipe) -> Images:
    """The images of a data set at `resolution`; validation images are those that the recipe names."""

    def split(name: SplitName) -> ImageSplit | DetectionSplit:
        found = data.at(name, resolution)
        assert isinstance(found, ImageSplit | DetectionSplit)
        return found

    return Images(
        train=split("train"),
        val=split(recipe.validate_on),
        test=split("test"),
        preprocess=data.preprocess,
        num_classes=data.num_classes,
        flip_ok=data.flip_ok,
    )
