"""What can be built: search spaces, architectures, blocks and the networks they stand for."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from search_spaces.architecture import Architecture, Decision
from search_spaces.blocks import BlockSpec
from search_spaces.detect import DetectSpace
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.presets import DENSE, DETECT, MIXED, MOBILE
from search_spaces.signature import OutputSpec, Signature, TensorSpec
from search_spaces.space import Choices, SearchSpace
from search_spaces.staged import StagedSpace

__all__ = [
    "SEARCH_SPACES",
    "Architecture",
    "BlockSpec",
    "Choices",
    "Decision",
    "DetectSpace",
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


def load_search_space(name: str) -> StagedSpace:
    """The space called `name`; raises `UnknownNameError` with the closest known names."""
    if name not in SEARCH_SPACES:
        raise UnknownNameError("search space", name, SEARCH_SPACES)
    return SEARCH_SPACES[name]()
