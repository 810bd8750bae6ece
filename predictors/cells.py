"""Structure of NAS-Bench-201 cells (Dong & Yang 2020): four nodes, six edges, five operations per edge.

Edges are in the order 0>1, 0>2, 1>2, 0>3, 1>3, 2>3; operations are 0 none, 1 skip, 2 conv 1x1, 3 conv 3x3, 4 average
pooling. An edge whose operation is "none" is absent; an edge that does not lie on a path from the input to the output
computes nothing that is used. Compilers drop such edges and eager frameworks do not, so both the cell as written and
the pruned cell are encoded, and the data of a device decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from predictors.base import Matrix, Vector
from predictors.features import FeatureGroup, counts, one_hot

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
NONE, SKIP, CONV1, CONV3, POOL = range(5)
N_OPS = 5


def prune(ops: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, 6) operations with every edge set to "none" that is not on a path from the input to the output."""
    from_input = np.zeros((len(ops), 4), dtype=bool)
    to_output = np.zeros((len(ops), 4), dtype=bool)
    from_input[:, 0] = True
    to_output[:, 3] = True
    for edge, (tail, head) in enumerate(EDGES):
        from_input[:, head] |= from_input[:, tail] & (ops[:, edge] != NONE)
    for edge, (tail, head) in reversed(list(enumerate(EDGES))):
        to_output[:, tail] |= to_output[:, head] & (ops[:, edge] != NONE)
    used = np.stack([from_input[:, tail] & to_output[:, head] for tail, head in EDGES], axis=1)
    return np.where(used, ops, NONE)


def longest_path(ops: NDArray[np.int64], op_cost: tuple[float, ...]) -> Vector:
    """(n,) largest sum of operation costs over the paths from input to output; 0 where there is no path."""
    cost = np.asarray(op_cost)
    depth = np.full((len(ops), 4), -np.inf)
    depth[:, 0] = 0.0
    for edge, (tail, head) in enumerate(EDGES):
        through = np.where(ops[:, edge] != NONE, depth[:, tail] + cost[ops[:, edge]], -np.inf)
        depth[:, head] = np.maximum(depth[:, head], through)
    return np.where(np.isfinite(depth[:, 3]), depth[:, 3], 0.0)


def structure(pruned: NDArray[np.int64]) -> Matrix:
    """(n, 7) of a pruned cell: connected or not, sums of tensors, live nodes, paths, three critical path lengths."""
    live = pruned != NONE
    in_degree = np.stack(
        [live[:, [e for e, (_, head) in enumerate(EDGES) if head == node]].sum(1) for node in (1, 2, 3)]
    )
    paths = np.zeros((len(pruned), 4))
    paths[:, 0] = 1.0
    for edge, (tail, head) in enumerate(EDGES):
        paths[:, head] += paths[:, tail] * live[:, edge]
    return np.stack(
        [
            live.any(1).astype(np.float64),
            np.maximum(in_degree - 1, 0).sum(0).astype(np.float64),
            (in_degree > 0).sum(0).astype(np.float64),
            paths[:, 3],
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
