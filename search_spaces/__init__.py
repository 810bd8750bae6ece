"""What can be built: search spaces, architectures, blocks and the networks they stand for."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, overload

from search_spaces.architecture import Architecture, Decision
from search_spaces.blocks import BlockSpec
from search_spaces.detect import DetectSpace
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.nb201 import Nb201Space
from search_spaces.presets import DENSE, DETECT, MIXED, MOBILE
from search_spaces.signature import OutputSpec, Signature, TensorSpec
from search_spaces.space import Choices, SearchSpace
from search_spaces.staged import StagedSpace

__all__ = [
    "CELL_SPACES",
    "SEARCH_SPACES",
    "Architecture",
    "BlockSpec",
    "Choices",
    "Decision",
    "DetectSpace",
    "Nb201Space",
    "OutputSpec",
    "SearchSpace",
    "Signature",
    "StagedSpace",
    "TensorSpec",
    "UnknownNameError",
    "UserError",
    "load_search_space",
]

SEARCH_SPACES: Mapping[str, Callable[[], StagedSpace]] = MappingProxyType(
    {
        "mixed": lambda: StagedSpace(MIXED),
        "mobile": lambda: StagedSpace(MOBILE),
        "dense": lambda: StagedSpace(DENSE),
        "detect": lambda: DetectSpace(DETECT),
    }
)
"""Every space that can be searched under a latency limit; tests and the documentation iterate over this table."""

CELL_SPACES: Mapping[str, Callable[[], Nb201Space]] = MappingProxyType({"nb201": Nb201Space})
"""Spaces of benchmarks: networks to build, train and score, without blocks to predict a latency from."""


@overload
def load_search_space(name: Literal["nb201"]) -> Nb201Space: ...  # type: ignore[overload-overlap]
@overload
def load_search_space(name: str) -> StagedSpace: ...


def load_search_space(name: str) -> SearchSpace:
    """The space called `name`; raises `UnknownNameError` with the closest known names.

    A name known only at run time is taken for a staged space. Where it is a cell space, asking for its resolutions, as
    everything that searches does first, raises a `UserError` that says so.
    """
    if name in CELL_SPACES:
        return CELL_SPACES[name]()
    if name not in SEARCH_SPACES:
        raise UnknownNameError("search space", name, SEARCH_SPACES)
    return SEARCH_SPACES[name]()
