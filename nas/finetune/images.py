"""The images of a fine-tuning."""

from dataclasses import dataclass

from nas.data.images import ImageSplit, Preprocess, SplitName
from nas.errors import UserError
from nas.tasks import TaskData
from nas.tasks.detection.data.values import DetectionSplit
from nas.training.recipe import Recipe
from search_spaces import TensorSpec
from search_spaces.signature import Size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """What a training sees, as the network takes it."""

    train: ImageSplit | DetectionSplit
    val: ImageSplit | DetectionSplit
    test: ImageSplit | DetectionSplit
    preprocess: Preprocess
    size: Size
    """Of the answers, see `search_spaces.signature.OutputSpec`."""
    flip_ok: bool

    def __post_init__(self) -> None:
        for name, split, needed in (("training", self.train, 2), ("validation", self.val, 1)):
            if len(split) < needed:
                raise UserError(
                    f"there are {len(split)} {name} images", f"give data with at least {needed} {name} images"
                )


def images_of(data: TaskData, input: TensorSpec, recipe: Recipe) -> Images:
    """The images of a data set as a network takes them; validation images are those that the recipe names."""

    def split(name: SplitName) -> ImageSplit | DetectionSplit:
        found = data.for_input(name, input)
        assert isinstance(found, ImageSplit | DetectionSplit)
        return found

    return Images(
        train=split("train"),
        val=split(recipe.validate_on),
        test=split("test"),
        preprocess=data.preprocess,
        size=data.output_size,
        flip_ok=data.flip_ok,
    )
