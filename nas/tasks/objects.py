"""What tasks share whose answers are objects at places of an image: all that does not depend on what each object is."""

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess
from nas.tasks.images import USUAL_PREPROCESS, at_fitting_resolutions, side_label, teacher_images
from search_spaces import SearchSpace, Signature, TensorSpec
from search_spaces.architecture import Option

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nas.training.recipe import Recipe


class ObjectData(Protocol):
    """Images with objects."""

    @property
    def native_resolution(self) -> int:
        """Side of the square that holds the images as they are, in pixels."""

    @property
    def preprocess(self) -> Preprocess:
        """How pixels become a network's input."""


Data = TypeVar("Data", bound=ObjectData)
Split = TypeVar("Split", bound=Sized)


class ObjectTask(Generic[Data, Split]):
    """The share of `nas.tasks.task.Task` that detection and what builds on it have in common."""

    __slots__ = ()

    name: str
    """Also of the folder beside this file that holds its `recipes`."""
    metric: str

    def metric_of(self, data: Data) -> str:
        return self.metric

    def check(self, data: Data) -> None:
        """Loading has checked everything."""

    def proxy_labels(self, split: Split) -> NDArray[np.int64]:
        """Zeros (n,): there is no class per image."""
        return np.zeros(len(split), np.int64)

    def searchable(self, space: SearchSpace, data: Data, allowed: Mapping[str, Sequence[Option]]) -> SearchSpace:
        return at_fitting_resolutions(space, data.native_resolution, allowed)

    def input_label(self, input: TensorSpec) -> str:
        return side_label(input)

    @property
    def recipes(self) -> Mapping[str, str]:
        from nas.training.recipe_files import yaml_recipes

        return yaml_recipes(f"nas.tasks.{self.name}")

    def check_recipe(self, recipe: "Recipe") -> None:
        from nas.tasks.detection.recipe import check_recipe

        check_recipe(recipe)

    def recipe(self, **settings: Any) -> "Recipe":
        from nas.training.recipe_files import load_recipe, shared_recipes

        bundled = shared_recipes() | dict(self.recipes)
        return load_recipe(f"{self.name}-search", bundled=bundled).changed(**settings)

    def teacher_view(
        self, input: TensorSpec, own: TensorSpec, given: Preprocess, wanted: Preprocess | None
    ) -> "Callable[[torch.Tensor], torch.Tensor] | None":
        return teacher_images(input, input, given, wanted)  # its cells have to be those of the network

    def hits(self, outputs: NDArray[np.float32], split: Split, signature: Signature) -> NDArray[np.bool_] | None:
        """None: mean average precision is no share of right answers."""
        return None

    def usual_preprocess(self, data: Data) -> Mapping[str, Any]:
        return {"the data's own": data.preprocess, **USUAL_PREPROCESS}

    def mirrored(self, network: "nn.Module", data: Data) -> "nn.Module | None":
        return None  # objects of a mirror image lie elsewhere, and two sets of them have no mean

    def standard_error(self, accuracy: float, split: Split) -> float | None:
        """None: mean average precision is no count of right answers."""
        return None
