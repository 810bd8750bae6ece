"""The table of block families. A new one is a file beside these and a line here."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from search_spaces.blocks import BlockFamily
from search_spaces.families.detection import DOWN, LATERAL, MERGE, PREDICT
from search_spaces.families.ends import HEAD, STEM
from search_spaces.families.fused import FUSED
from search_spaces.families.mbconv import MBCONV
from search_spaces.families.pooled import POOLED
from search_spaces.families.pose import PREDICT_POSE
from search_spaces.families.rep import REP
from search_spaces.families.residual import BASIC, BOTTLENECK

FAMILIES: Mapping[str, BlockFamily] = MappingProxyType(
    {
        family.name: family
        for family in (
            *(STEM, HEAD, MBCONV, FUSED, BASIC, BOTTLENECK, REP, POOLED, LATERAL, MERGE, DOWN, PREDICT),
            PREDICT_POSE,
        )
    }
)


def families_with(own: Sequence[BlockFamily]) -> Mapping[str, BlockFamily]:
    """Our families and those that a space brings, by name; raises `ValueError` for a name that is taken."""
    found = dict(FAMILIES)
    for family in own:
        if found.setdefault(family.name, family) != family:
            raise ValueError(f"there is another family of blocks called {family.name!r}")
    return found
