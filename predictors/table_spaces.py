"""Names of known table layouts, how a table is recognised, and its encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from predictors.base import Matrix, check_choices
from predictors.block_costs import fbnet_groups, is_fbnet_table, is_ofa_table, ofa_groups
from predictors.cells import cell_groups, is_cell_table
from predictors.features import FeatureGroup, TableEncoding, generic_groups, make_encoding
from search_spaces.errors import UnknownNameError, UserError

AUTO = "auto"
GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class TableSpace:
    """A layout: whether unlabelled rows (n, decisions) have it, and its feature groups."""

    matches: Callable[[Matrix], bool]
    groups: Callable[[], tuple[FeatureGroup, ...]]


TABLE_SPACES: Mapping[str, TableSpace] = {
    "nb201": TableSpace(is_cell_table, cell_groups),
    "fbnet": TableSpace(is_fbnet_table, fbnet_groups),
    "ofa": TableSpace(is_ofa_table, ofa_groups),
}


def table_encoding(choices: NDArray[Any], space: str = AUTO) -> TableEncoding:
    """The encoding of a table from its unlabelled rows.

    Args:
        choices: (n, decisions), all rows of the table or a sample of the space; only its values are looked at.
        space: a name in TABLE_SPACES, "generic", or "auto": the one layout whose shape and values fit, else generic.

    Raises:
        UserError: an unknown name, or rows that do not have the named layout.
    """
    reference = check_choices(choices)
    if len(reference) == 0:
        raise UserError("an empty table has no encoding")
    if space == AUTO:
        found = [name for name, known in TABLE_SPACES.items() if known.matches(reference)]
        space = found[0] if len(found) == 1 else GENERIC
    if space == GENERIC:
        return make_encoding(GENERIC, generic_groups(reference), reference)
    if space not in TABLE_SPACES:
        raise UnknownNameError("table space", space, [*TABLE_SPACES, GENERIC, AUTO])
    if not TABLE_SPACES[space].matches(reference):
        raise UserError(
            f"the choices ({reference.shape[1]} decisions) do not have the layout of {space!r}",
            f"use --space {GENERIC}, or check the columns and their order",
        )
    return make_encoding(space, TABLE_SPACES[space].groups(), reference)
