"""Reading columns of .npz tables, and the figures by which predictions of latency are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import UnknownNameError, UserError

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """`FILE.npz:COL`; several columns joined by "+" are summed (encoder + decoder)."""

    path: Path
    columns: tuple[str, ...]

    @property
    def label(self) -> str:
        """The column part, as typed."""
        return "+".join(self.columns)


def parse_specs(text: str) -> tuple[ColumnSpec, ...]:
    """`FILE:COL,COL,FILE:COL` to columns; a file holds until the next one is named.

    Raises:
        UserError: a column before any file, or an empty name.
    """
    specs: list[ColumnSpec] = []
    path: Path | None = None
    for item in text.split(","):
        file_name, colon, column = item.rpartition(":")
        if colon:
            path = Path(file_name)
        if path is None or not column.strip():
            raise UserError(f"cannot read {item!r} in {text!r}", "write FILE.npz:COLUMN[,COLUMN]")
        specs.append(ColumnSpec(path, tuple(part.strip() for part in column.split("+"))))
    return tuple(specs)


class TableReader:
    """Opens each .npz file once; never unpickles."""

    def __init__(self) -> None:
        self._tables: dict[Path, Mapping[str, NDArray[Any]]] = {}

    def array(self, path: Path, column: str) -> NDArray[Any]:
        """Raises UserError (no such file, not an .npz, an object array) or UnknownNameError (no such column)."""
        table = self._table(path)
        if column not in table:
            raise UnknownNameError(f"column of {path.name}", column, table)
        try:
            return np.asarray(table[column])
        except ValueError as error:
            raise UserError(f"column {column!r} of {path.name} holds objects, not numbers") from error

    def matrix(self, specs: Sequence[ColumnSpec]) -> NDArray[np.float64]:
        """Columns side by side: (rows, decisions)."""
        parts = []
        for spec in specs:
            total = self._total(spec)
            parts.append(total[:, None] if total.ndim == 1 else total)
        rows = {len(part) for part in parts}
        if len(rows) > 1:
            raise UserError(f"columns of choices have different numbers of rows: {sorted(rows)}")
        return np.concatenate(parts, axis=1)

    def vector(self, spec: ColumnSpec) -> Vector:
        """(rows,)"""
        total = self._total(spec)
        if total.ndim != 1:
            raise UserError(f"column {spec.label!r} of {spec.path.name} is not a vector, its shape is {total.shape}")
        return total

    def _total(self, spec: ColumnSpec) -> NDArray[np.float64]:
        arrays = [self.array(spec.path, column) for column in spec.columns]
        for column, array in zip(spec.columns, arrays, strict=True):
            if array.dtype.kind not in "biuf":
                raise UserError(f"column {column!r} of {spec.path.name} holds text, not numbers")
        return np.asarray(sum(array.astype(np.float64) for array in arrays))

    def _table(self, path: Path) -> Mapping[str, NDArray[Any]]:
        if path not in self._tables:
            if not path.is_file():
                raise UserError(f"no file {str(path)!r}")
            try:
                table = np.load(path, allow_pickle=False)
            except (ValueError, EOFError, BadZipFile) as error:
                raise UserError(f"{str(path)!r} is not a numpy table", "save it with numpy.savez") from error
            if not isinstance(table, np.lib.npyio.NpzFile):
                raise UserError(f"{str(path)!r} holds one array without a name", "save it with numpy.savez")
            self._tables[path] = table
        return self._tables[path]


def usable_rows(latency_ms: Vector, drop_below: float) -> NDArray[np.intp]:
    """Rows that are positive numbers, and at least `drop_below` x the median."""
    positive = np.isfinite(latency_ms) & (latency_ms > 0)
    if not positive.any():
        raise UserError("the latency column has no positive value")
    limit = drop_below * float(np.median(latency_ms[positive]))
    return np.flatnonzero(positive & (np.where(positive, latency_ms, 0) >= limit))


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of a random split."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]


def random_split(
    rows: NDArray[np.intp], n: int, seed: int, groups: NDArray[Any] | None = None, max_test: int | None = None
) -> Split:
    """n random rows to learn from, all others to test.

    Args:
        rows: usable row numbers.
        n: training rows.
        seed: of the shuffle.
        groups: (all rows,) identity; test rows that share it with a training row are left out.
        max_test: at most so many test rows (for a quick look).
    """
    if n < 1 or n >= len(rows):
        raise UserError(f"{n} training rows of {len(rows)} usable rows leave nothing to learn from or to test")
    shuffled = np.random.default_rng(seed).permutation(rows)
    train, test = shuffled[:n], shuffled[n:]
    if groups is not None:
        test = test[~np.isin(groups[test], groups[train])]
        if len(test) == 0:
            raise UserError("no test row is left outside the groups of the training rows")
    return Split(train, test[:max_test])


def judge(mean_ms: Vector, std_ms: Vector, truth_ms: Vector) -> dict[str, float]:
    """Percentages, and rank correlations (0 for a constant prediction, which orders nothing)."""
    from scipy.stats import kendalltau, spearmanr

    error = np.abs(mean_ms / truth_ms - 1)
    orders = np.ptp(mean_ms) > 0 and np.ptp(truth_ms) > 0
    return {
        "mape": 100 * float(error.mean()),
        "within_5pct": 100 * float((error <= 0.05).mean()),
        "within_10pct": 100 * float((error <= 0.10).mean()),
        "spearman": float(spearmanr(mean_ms, truth_ms).statistic) if orders else 0.0,
        "kendall": float(kendalltau(mean_ms, truth_ms).statistic) if orders else 0.0,
        "coverage_90pct": 100 * float((np.abs(mean_ms - truth_ms) <= 1.6449 * std_ms).mean()),
    }


def average(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each figure."""
    return {key: float(np.mean([row[key] for row in figures])) for key in figures[0]}
