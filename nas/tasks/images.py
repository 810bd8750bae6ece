"""Code that all tasks on square images share."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from nas.data.images import Preprocess, image_side
from search_spaces import SearchSpace, TensorSpec
from search_spaces.architecture import Option

if TYPE_CHECKING:
    import torch

USUAL_PREPROCESS: Mapping[str, Preprocess] = MappingProxyType(
    {
        "ImageNet's": Preprocess((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "-1 to 1": Preprocess((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        "0 to 1": Preprocess((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    }
)
"""Normalisations that most published networks are trained with, by names for people."""
RESOLUTION = "resolution"
"""The decision of a space of images that is up to the data."""


def at_fitting_resolutions(space: SearchSpace, native: int, allowed: Mapping[str, Sequence[Option]]) -> SearchSpace:
    """The part of `space` with the `allowed` options, at resolutions near the `native` one where they do not say which.

    That is none above it and none below half of it: more pixels than there are cost time and show nothing new; far
    fewer lose what there is to see. A space that does not decide about its resolution keeps its own.

    Raises `UserError` for options that the space does not have.
    """
    if RESOLUTION in allowed or all(decision.name != RESOLUTION for decision in space.decisions):
        return space.restricted(allowed)
    options = sorted(int(option) for option in space.decisions[space.column(RESOLUTION)].options)
    fitting = [option for option in options if 0.5 * native < option <= native]
    nearest = min(options, key=lambda option: abs(option - native))
    return space.restricted({**allowed, RESOLUTION: fitting or [nearest]})


def side_label(input: TensorSpec) -> str:
    """Rows and columns of an image for people: `96 px`."""
    return f"{image_side(input)} px"


def teacher_images(
    input: TensorSpec, own: TensorSpec, given: Preprocess, wanted: Preprocess | None
) -> "Callable[[torch.Tensor], torch.Tensor] | None":
    """Makes of images (n, 3, *, *) for `input`, normalised by `given`, those for `own`, normalised by `wanted`.

    None where both are the same; `wanted` None: as `given`.
    """
    import torch
    from torch.nn.functional import interpolate

    same_size = input.shape == own.shape
    same_scale = wanted is None or (wanted.mean, wanted.std) == (given.mean, given.std)
    if same_size and same_scale:
        return None
    (mean, std), (own_mean, own_std) = (
        (torch.tensor(p.mean)[:, None, None], torch.tensor(p.std)[:, None, None]) for p in (given, wanted or given)
    )
    factor, summand = std / own_std, (mean - own_mean) / own_std

    def view(images: torch.Tensor) -> torch.Tensor:
        if not same_size:
            images = interpolate(images, size=own.shape[1:], mode="bilinear", antialias=True)
        return images if same_scale else images * factor.to(images.device) + summand.to(images.device)

    return view
