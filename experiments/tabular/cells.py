"""Structure of NAS-Bench-201 cells (Dong & Yang 2020): four nodes, six edges, five operations per edge.

Edges and operation ids are those of `experiments.tabular.nb201`. An edge whose operation is "none" is absent; one that
does not lie on a path from the input to the output computes nothing that is used. Compilers drop such edges and eager
frameworks do not, so both the cell as written and the pruned cell are encoded, and the data of a device decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.tabular.features import FeatureGroup, counts, one_hot
from experiments.tabular.nb201 import CONV1, CONV3, EDGES, NONE, OPERATIONS, POOL
from experiments.tabular.rows import Matrix, Vector

PATHS = ((3,), (0, 4), (1, 5), (0, 2, 5))
"""The paths from the input to the output, as positions in `EDGES`."""

N_OPS = len(OPERATIONS)


def live_paths(ops: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, 4): which of `PATHS` have no "none" on them."""
    return np.stack([(ops[:, list(path)] != NONE).all(1) for path in PATHS], axis=1)


def along_paths(marks: NDArray[Any]) -> Matrix:
    """Sum of a quantity per edge (n, 6) along each path, (n, 4)."""
    return np.stack([marks[:, list(path)].astype(np.float64).sum(1) for path in PATHS], axis=1)


def prune(ops: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, 6) operations with every edge set to "none" that is not on a path from the input to the output."""
    used = np.zeros(ops.shape, dtype=bool)
    for path, live in zip(PATHS, live_paths(ops).T, strict=True):
        used[:, list(path)] |= live[:, None]
    return np.where(used, ops, NONE)


def conv_weights(ops: NDArray[Any]) -> Vector:
    """(n,) weights of a cell's convolutions in units of channels squared: 1 per 1x1 and 9 per 3x3, all edges."""
    return np.asarray((ops == CONV1).sum(1) + 9.0 * (ops == CONV3).sum(1), dtype=np.float64)


def longest_path(ops: NDArray[np.int64], op_cost: tuple[float, ...]) -> Vector:
    """(n,) largest sum of operation costs over the paths from input to output; 0 where there is no path."""
    sums = np.where(live_paths(ops), along_paths(np.asarray(op_cost)[ops]), -np.inf).max(1)
    return np.where(np.isfinite(sums), sums, 0.0)


def structure(pruned: NDArray[np.int64]) -> Matrix:
    """(n, 7) of a pruned cell: connected or not, sums of tensors, live nodes, paths, three critical path lengths."""
    live = pruned != NONE
    in_degree = np.stack(
        [live[:, [e for e, (_, head) in enumerate(EDGES) if head == node]].sum(1) for node in (1, 2, 3)]
    )
    return np.stack(
        [
            live.any(1).astype(np.float64),
            np.maximum(in_degree - 1, 0).sum(0).astype(np.float64),
            (in_degree > 0).sum(0).astype(np.float64),
            live_paths(pruned).sum(1).astype(np.float64),
            longest_path(pruned, (0, 0, 1, 1, 1)),  # launches of kernels
            longest_path(pruned, (0, 0, 1, 1, 0)),  # convolutions
            longest_path(pruned, (0, 0, 0.2, 1, 0.2)),  # roughly time
        ],
        axis=1,
    )


def cell_groups() -> tuple[FeatureGroup, ...]:
    """Priors: what an operation costs wherever it stands matters most, then the structure, then its place."""
    return (
        FeatureGroup("op counts", lambda x: counts(_ops(x), N_OPS), 0.1),
        FeatureGroup("live op counts", lambda x: counts(prune(_ops(x)), N_OPS), 0.03),
        FeatureGroup("structure", lambda x: structure(prune(_ops(x))), 0.01),
        FeatureGroup("ops by edge", lambda x: one_hot(_ops(x), N_OPS), 0.001),
        FeatureGroup("live ops by edge", lambda x: one_hot(prune(_ops(x)), N_OPS), 0.001),
    )


def is_cell_table(choices: Matrix) -> bool:
    """Six decisions with exactly the five operation ids 0-4."""
    return choices.shape[1] == len(EDGES) and bool(np.isin(choices, range(N_OPS)).all()) and choices.max() == POOL


def _ops(choices: Matrix) -> NDArray[np.int64]:
    return choices.astype(np.int64)
