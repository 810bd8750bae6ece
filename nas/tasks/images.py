"""What all tasks on square images share."""

from collections.abc import Mapping, Sequence

from nas.data.images import image_side
from search_spaces import SearchSpace, TensorSpec
from search_spaces.architecture import Option

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
