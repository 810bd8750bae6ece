"""Everything that can be built: search spaces, architectures, blocks and the networks they stand for."""

from search_spaces.architecture import Architecture, Decision
from search_spaces.blocks import BlockSpec
from search_spaces.detect import DetectSpace
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.reference import (
    BUNDLED_SPACES,
    SEARCH_SPACES,
    architecture_of_json,
    load_search_space,
    resolve_space,
    space_of,
)
from search_spaces.signature import OutputSpec, Signature, TensorSpec
from search_spaces.space import Choices, SearchSpace
from search_spaces.staged import StagedSpace
from search_spaces.text import TextSpace

__all__ = [
    "BUNDLED_SPACES",
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
    "TextSpace",
    "UnknownNameError",
    "UserError",
    "architecture_of_json",
    "load_search_space",
    "resolve_space",
    "space_of",
]
