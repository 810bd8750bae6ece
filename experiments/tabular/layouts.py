"""Names of known table layouts, how a table is recognised, and its encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from experiments.tabular.block_costs import fbnet_groups, is_fbnet_table, is_ofa_table, ofa_groups
from experiments.tabular.cells import cell_groups, is_cell_table
from experiments.tabular.features import FeatureGroup, TableEncoding, generic_groups, make_encoding
from experiments.tabular.rows import Matrix, check_choices
from search_spaces.errors import UnknownNameError, UserError

AUTO = "auto"
GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout: whether unlabelled rows (n, decisions) have it, and its feature groups."""

    matches: Callable[[Matrix], bool]
    groups: Callable[[], tuple[FeatureGroup, ...]]


LAYOUTS: Mapping[str, Layout] = {
    "nb201": Layout(is_cell_table, cell_groups),
    "fbnet": Layout(is_fbnet_table, fbnet_groups),
    "ofa": Layout(is_ofa_table, ofa_groups),
}


def table_encoding(choices: NDArray[Any], space: str = AUTO) -> TableEncoding:
    """The encoding of a table from its unlabelled rows.

    Args:
        choices: (n, decisions), all rows of the table or a sample of the space; only its values are looked at.
        space: a name in LAYOUTS, "generic", or "auto": the one layout whose shape and values fit, else generic.

    Raises:
        UserError: an unknown name, or rows that do not have the named layout.
    """
    reference = check_choices(choices)
    if len(reference) == 0:
        raise UserError("an empty table has no encoding")
    if space == AUTO:
        found = [name for name, known in LAYOUTS.items() if known.matches(reference)]
        space = found[0] if len(found) == 1 else GENERIC
    if space == GENERIC:
        return make_encoding(GENERIC, generic_groups(reference), reference)
    if space not in LAYOUTS:
        raise UnknownNameError("table space", space, [*LAYOUTS, GENERIC, AUTO])
    if not LAYOUTS[space].matches(reference):
        raise UserError(
            f"the choices ({reference.shape[1]} decisions) do not have the layout of {space!r}",
            f"use --space {GENERIC}, or check the columns and their order",
        )
    return make_encoding(space, LAYOUTS[space].groups(), reference)
