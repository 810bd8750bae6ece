"""A table that lists every network of a space, as a search space: what samplers are compared on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from experiments.tabular.layouts import AUTO, GENERIC
from experiments.tabular.views import NB201_VIEWS, chain_views
from predictors.accuracy_features import FeatureView, generic_views
from search_spaces import Architecture, Choices, SearchSpace, Signature
from search_spaces.architecture import Decision
from search_spaces.blocks import BlockSpec
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn

VIEWS: dict[str, tuple[tuple[int, ...], tuple[FeatureView, ...]]] = {
    "nb201": ((5,) * 6, NB201_VIEWS),
    "nbmacro": ((3,) * 8, chain_views((2, 3, 3), widths=(0.0, 3.0, 6.0))),
}
"""Known layouts: options per decision, and the views from which accuracies are predicted."""


class TableSpace(SearchSpace):
    """The networks of a table whose rows are all combinations of its columns' values.

    Every row counts as a network of its own, also where two rows compute the same: their entries differ.
    Networks of a table can be looked up, not built.
    """

    def __init__(
        self,
        name: str,
        levels: Sequence[NDArray[np.int64]],
        rows: NDArray[np.int64],
        views: tuple[FeatureView, ...],
        allowed: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`levels`: the values of each decision; `rows`: the table's row of each combination, last decision fastest."""
        decisions = [Decision(f"decision{k}", tuple(int(v) for v in known)) for k, known in enumerate(levels)]
        super().__init__(name, decisions, allowed)
        self.levels = tuple(levels)
        self.rows = rows
        self.views = tuple(self._of_values(view) for view in views)

    @classmethod
    def of_table(cls, matrix: NDArray[Any], layout: str = AUTO) -> Self:
        """From all rows (n, decisions) of a table; `layout` is a name in VIEWS, "generic" or "auto" (by the values).

        Raises:
            UserError: not integers, or not every combination exactly once, or not the named layout.
        """
        values = np.asarray(matrix)
        if values.ndim != 2 or not np.isfinite(values).all() or (values != np.round(values)).any():
            raise UserError(
                f"the choices of shape {values.shape} are not a matrix of integers", "name decision columns"
            )
        codes = values.astype(np.int64)
        levels = [np.unique(column) for column in codes.T]
        indices = np.column_stack([np.searchsorted(known, c) for known, c in zip(levels, codes.T, strict=True)])
        shape = tuple(len(known) for known in levels)
        combinations = int(np.prod([float(n) for n in shape]))
        if len(codes) != combinations or len(np.unique(indices, axis=0)) != combinations:
            raise UserError(
                f"the table has {len(codes):,} rows for {combinations:,} combinations of its choices",
                "a search needs a table with every network in it exactly once, such as NAS-Bench-201",
            )
        rows = np.empty(combinations, dtype=np.int64)
        rows[np.ravel_multi_index(tuple(indices.T), shape)] = np.arange(combinations)
        name = layout_of(levels, layout)
        return cls(name, levels, rows, VIEWS[name][1] if name in VIEWS else generic_views(codes))

    def row(self, choices: Choices) -> NDArray[np.int64]:
        """(n, decisions) -> (n,) rows of the table."""
        shape = tuple(len(known) for known in self.levels)
        found: NDArray[np.int64] = self.rows[np.ravel_multi_index(tuple(np.asarray(choices).T), shape)]
        return found

    def canonical(self, choices: Choices) -> Choices:
        return choices

    @property
    def size(self) -> int:
        return int(np.prod([len(a) for a in self.allowed]))

    def features(self, choices: Choices) -> NDArray[np.float64]:
        return self.views[0](choices)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"feature{k}" for k in range(self.features(self.sample(1, np.random.default_rng(0))).shape[1]))

    def signature(self, arch: Architecture, size: Size) -> Signature:
        raise self._unbuildable()

    def blocks(self, arch: Architecture, size: Size) -> tuple[BlockSpec, ...]:
        raise self._unbuildable()

    def build(self, arch: Architecture, size: Size) -> nn.Module:
        raise self._unbuildable()

    def _unbuildable(self) -> UserError:
        return UserError(f"networks of the table {self.name!r} can be looked up, not built")

    def _of_values(self, view: FeatureView) -> Callable[[Choices], NDArray[np.float64]]:
        levels = self.levels

        def of_options(choices: Choices) -> NDArray[np.float64]:
            return view(np.column_stack([known[c] for known, c in zip(levels, np.asarray(choices).T, strict=True)]))

        return of_options


def layout_of(levels: Sequence[NDArray[np.int64]], name: str) -> str:
    """The layout `name`, or with "auto" the one whose decisions have these values, else "generic"."""
    fitting = [
        known
        for known, (shape, _) in VIEWS.items()
        if len(shape) == len(levels)
        and all(np.array_equal(v, np.arange(n)) for v, n in zip(levels, shape, strict=True))
    ]
    if name == AUTO:
        return fitting[0] if len(fitting) == 1 else GENERIC
    if name != GENERIC and name not in VIEWS:
        raise UnknownNameError("space", name, [*VIEWS, GENERIC, AUTO])
    if name != GENERIC and name not in fitting:
        raise UserError(f"the choices ({len(levels)} decisions) are not from {name!r}", f"use --space {GENERIC}")
    return name
