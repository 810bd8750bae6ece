"""Encodings of table rows: integer decisions or numeric features to real columns, grouped by what they mean.

A group is the unit of shrinkage: the additive predictor learns one variance per group, so that a group that says
nothing about a device fades out, however many columns it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.tabular.rows import Matrix, Vector
from search_spaces.errors import UserError

MAX_LEVELS = 16
"""A column with more distinct values than this, or with fractions, is a number; any other is a choice."""

REFERENCE_ROWS = 4096
"""Rows that are enough for the means and scales of feature columns."""


@dataclass(frozen=True, slots=True)
class FeatureGroup:
    """Columns that share one prior.

    Attributes:
        name: shown in diagnostics.
        encode: (n, decisions) float64 -> (n, columns) float64.
        variance: prior variance of the group's part of the latency, relative to the squared mean latency.
        kernel: "linear" (a cost per column), "columns" (linear, a variance for each column: sparse), or "rbf" (smooth).
        standardise: divide each column by its standard deviation, for columns of unlike units.
        costs: its columns are amounts of work, so that more of one never takes less time.
    """

    name: str
    encode: Callable[[Matrix], Matrix]
    variance: float
    kernel: Literal["linear", "columns", "rbf"] = "linear"
    standardise: bool = False
    costs: bool = False


@dataclass(frozen=True, slots=True)
class KernelBlock:
    """The place of a group (or of one column of it) in the encoded matrix, and its prior."""

    name: str
    start: int
    stop: int
    variance: float
    rbf: bool


@dataclass(frozen=True, slots=True)
class TableEncoding:
    """Feature groups fixed on the unlabelled rows of a table (or a sample of the space); no latency enters.

    Attributes:
        name: of the layout, as in `experiments.tabular.layouts.LAYOUTS`.
        groups: what is encoded.
        center, scale: (columns,), from the reference rows.
        widths: columns of each group.
        levels: per decision its sorted legal values, or None for a number.
        cost_scale: means of the columns of `costs`.
    """

    name: str
    groups: tuple[FeatureGroup, ...]
    center: Vector
    scale: Vector
    widths: tuple[int, ...]
    levels: tuple[Vector | None, ...]
    cost_scale: Vector

    def encode(self, choices: Matrix) -> Matrix:
        """(n, decisions) to (n, columns).

        Raises:
            UserError: a wrong number of decisions, or a value that the space does not have.
        """
        check_levels(choices, self.levels)
        raw = np.concatenate([group.encode(choices) for group in self.groups], axis=1)
        return (raw - self.center) / self.scale

    def costs(self, choices: Matrix) -> Matrix | None:
        """(n, decisions) to the amounts of work (n, columns), not negative; None where the layout tells none."""
        parts = [group.encode(choices) for group in self.groups if group.costs]
        return np.concatenate(parts, axis=1) / self.cost_scale if parts else None

    @property
    def blocks(self) -> tuple[KernelBlock, ...]:
        """Kernel blocks over the columns of `encode`."""
        blocks: list[KernelBlock] = []
        start = 0
        for group, width in zip(self.groups, self.widths, strict=True):
            if group.kernel == "columns":
                blocks += [
                    KernelBlock(f"{group.name}[{k}]", start + k, start + k + 1, group.variance, False)
                    for k in range(width)
                ]
            else:
                blocks.append(KernelBlock(group.name, start, start + width, group.variance, group.kernel == "rbf"))
            start += width
        return tuple(blocks)


def make_encoding(name: str, groups: Sequence[FeatureGroup], reference: Matrix) -> TableEncoding:
    """Fixes legal values, centres and scales on `reference` (n, decisions): the unlabelled rows of the table."""
    sample = reference
    if len(reference) > REFERENCE_ROWS:
        rows = np.random.default_rng(0).choice(len(reference), REFERENCE_ROWS, replace=False)
        sample = reference[rows]
    parts = [group.encode(sample) for group in groups]
    scales = [
        np.where(part.std(0) > 1e-12, part.std(0), 1.0) if group.standardise else np.ones(part.shape[1])
        for group, part in zip(groups, parts, strict=True)
    ]
    return TableEncoding(
        name=name,
        groups=tuple(groups),
        center=np.concatenate([part.mean(0) for part in parts]),
        scale=np.concatenate(scales),
        widths=tuple(part.shape[1] for part in parts),
        levels=column_levels(reference),
        cost_scale=np.concatenate(
            [np.zeros(0), *(np.maximum(p.mean(0), 1e-12) for g, p in zip(groups, parts, strict=True) if g.costs)]
        ),
    )


def column_levels(choices: Matrix) -> tuple[Vector | None, ...]:
    """Per column the sorted distinct integers, or None where the column holds numbers rather than choices."""
    levels: list[Vector | None] = []
    for column in choices.T:
        values = np.unique(column)
        is_choice = len(values) <= MAX_LEVELS and bool((values == np.round(values)).all())
        levels.append(values if is_choice else None)
    return tuple(levels)


def check_levels(choices: Matrix, levels: Sequence[Vector | None]) -> None:
    """Raises UserError where a row has a decision or a value that the space does not know; zero is never guessed."""
    if choices.shape[1] != len(levels):
        raise UserError(f"rows have {choices.shape[1]} decisions, the space has {len(levels)}")
    for k, legal in enumerate(levels):
        if legal is None:
            continue
        known = np.isin(choices[:, k], legal)
        if not known.all():
            value = choices[np.flatnonzero(~known)[0], k]
            raise UserError(
                f"decision {k} has the unknown value {value:g}", f"known: {', '.join(f'{v:g}' for v in legal)}"
            )


def one_hot(choices: NDArray[np.int64], n_levels: int) -> Matrix:
    """(n, d) integers in [0, n_levels) to (n, d * n_levels) zeros and ones."""
    n, d = choices.shape
    out = np.zeros((n, d * n_levels))
    out[np.arange(n)[:, None], np.arange(d) * n_levels + choices] = 1.0
    return out


def counts(choices: NDArray[np.int64], n_levels: int) -> Matrix:
    """(n, d) integers in [0, n_levels) to (n, n_levels): how often each value occurs in a row."""
    return np.stack([(choices == level).sum(1) for level in range(n_levels)], axis=1).astype(np.float64)


def one_hot_levels(choices: Matrix, levels: Sequence[Vector | None]) -> Matrix:
    """One column per legal value of each choice; numbers pass unchanged."""
    columns = [
        choices[:, [k]] if legal is None else (choices[:, [k]] == legal[None, :]).astype(np.float64)
        for k, legal in enumerate(levels)
    ]
    return np.concatenate(columns, axis=1)


def generic_groups(reference: Matrix) -> tuple[FeatureGroup, ...]:
    """Groups for a table about which nothing else is known.

    Numeric tables get a sparse linear model (one variance per column) and a smooth remainder. Integer tables get counts
    of each value where all decisions share their values (the same operation at different places costs alike), a slope
    per decision, and a cost per value and decision.
    """
    levels = column_levels(reference)
    if any(legal is None for legal in levels):
        return (
            FeatureGroup("columns", lambda x: x, 3e-4, "columns", standardise=True),
            FeatureGroup("smooth", lambda x: x, 1e-4, "rbf", standardise=True),
        )
    groups = [
        FeatureGroup("slopes", lambda x: x, 0.01, standardise=True),
        FeatureGroup("values", lambda x: one_hot_levels(x, levels), 0.001),
    ]
    alphabet = np.unique(np.concatenate([legal for legal in levels if legal is not None]))
    if len(alphabet) <= MAX_LEVELS and len(levels) > 2:

        def value_counts(x: Matrix) -> Matrix:
            return np.stack([(x == value).sum(1) for value in alphabet], axis=1).astype(np.float64)

        groups.insert(0, FeatureGroup("counts", value_counts, 0.1))
    return tuple(groups)
