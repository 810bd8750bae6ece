"""Structural features of the known tables' networks: cells of NAS-Bench-201, stages, chains of layers."""

from functools import cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from experiments.tabular.cells import PATHS, along_paths, conv_weights, live_paths, prune
from experiments.tabular.nb201 import CONV1, CONV3, EDGES, NONE, OPERATIONS, POOL, SKIP
from predictors.accuracy_features import Choices, FeatureView, Floats

_POOL_KEEPS = 0.4  # share of a white signal's variance that a 3x3 average leaves, borders and correlation included


def nb201_summary(choices: Choices) -> Floats:
    """What a NAS-Bench-201 cell computes, in some thirty numbers; choices (n, 6) of operation ids on the six edges.

    Edges that carry nothing from the input to the output are removed first. Then: how often each operation occurs,
    the weights, the shape of the input-output paths (how many, longest and shortest in convolutions, the length of
    the shortest shortcut), and the share of the output's variance that has passed each kind of operation.
    In the spirit of "Surprisingly strong performance prediction with neural graph features" (Kadlecova et al., 2024).
    """
    return _nb201_table()[0][_nb201_index(choices)]


def nb201_words(choices: Choices) -> Floats:
    """The pruned cell's operation on every edge (one-hot), and its paths as words over conv1x1, conv3x3 and pool.

    Skips are left out of the words: skip-conv-skip computes what conv computes. Choices (n, 6), features (n, 70).
    """
    return _nb201_table()[1][_nb201_index(choices)]


NB201_VIEWS: tuple[FeatureView, ...] = (nb201_summary, nb201_words)


def _nb201_index(choices: Choices) -> NDArray[np.int64]:
    choices = np.asarray(choices)
    if choices.ndim != 2 or choices.shape[1] != len(EDGES):
        raise ValueError(f"a NAS-Bench-201 cell has {len(EDGES)} operations, got choices of shape {choices.shape}")
    if choices.size and (choices.min() < 0 or choices.max() >= len(OPERATIONS)):
        raise ValueError(f"operation ids are 0 to {len(OPERATIONS) - 1}, got {choices.min()} to {choices.max()}")
    return choices.astype(np.int64) @ (len(OPERATIONS) ** np.arange(len(EDGES), dtype=np.int64)[::-1])


@cache
def _nb201_table() -> tuple[Floats, Floats]:
    """Both views of all 15,625 cells: a look-up is what makes a million candidates a matter of a second."""
    cells = np.array(list(product(range(len(OPERATIONS)), repeat=len(EDGES))), dtype=np.int64)
    live = prune(cells)
    return np.column_stack([_path_summary(cells, live), _signal_shares(live)]), _words(live)


def _path_summary(cells: NDArray[np.int64], live: NDArray[np.int64]) -> Floats:
    alive = live_paths(live)
    is_conv = (live == CONV1) | (live == CONV3)
    convs, convs3, pools = along_paths(is_conv), along_paths(live == CONV3), along_paths(live == POOL)
    count = {op: (live == op).sum(1) for op in range(len(OPERATIONS))}
    params = conv_weights(live)
    steps = convs + pools

    def longest(values: Floats, where: NDArray[np.bool_] = alive) -> Floats:
        return np.asarray(np.where(where, values, -1.0).max(1), dtype=np.float64)

    def shortest(values: Floats) -> Floats:
        return np.asarray(np.where(alive, values, 4.0).min(1), dtype=np.float64)

    columns = {
        "skips": count[SKIP],
        "conv1x1s": count[CONV1],
        "conv3x3s": count[CONV3],
        "pools": count[POOL],
        "convs": is_conv.sum(1),
        "params": params,
        "log_params": np.log1p(params),
        "log_params_with_dead_edges": np.log1p(conv_weights(cells)),
        "paths": alive.sum(1),
        "most_convs": longest(convs),
        "fewest_convs": shortest(convs),
        "most_conv3x3s": longest(convs3),
        "most_pools": longest(pools),
        "fewest_pools": shortest(pools),
        "most_conv3x3s_without_pool": longest(convs3, alive & (pools == 0)),
        "identity_paths": (alive & (steps == 0)).sum(1),
        "pool_only_paths": (alive & (convs == 0) & (pools > 0)).sum(1),
        "convs_over_paths": (alive * convs).sum(1),
        "conv3x3s_over_paths": (alive * convs3).sum(1),
        "paths_with_conv": (alive & (convs > 0)).sum(1),
        "paths_with_conv3x3": (alive & (convs3 > 0)).sum(1),
        "disconnected": ~alive.any(1),
        "without_conv": ~is_conv.any(1),
        "shortest_shortcut": shortest(steps),
        "shortest_shortcut_by_cost": shortest(steps + convs3),
    }
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])


def _signal_shares(live: NDArray[np.int64]) -> Floats:
    """Log variance at the output, the mean numbers of conv1x1, conv3x3 and pool it passed, and the share without convs.

    Batch-normalised convolutions give unit variance, skips keep it, pools shrink it, branches count as independent.
    """
    n = len(live)
    variance = [np.ones(n)]
    passed = [np.zeros((n, 3))]
    untouched = [np.ones(n)]
    for node in range(1, 4):
        total, passed_total, untouched_total = np.zeros(n), np.zeros((n, 3)), np.zeros(n)
        for edge, (source, target) in enumerate(EDGES):
            if target != node:
                continue
            op = live[:, edge]
            is_conv = (op == CONV1) | (op == CONV3)
            arriving = variance[source]
            leaving = np.select(
                [op == SKIP, is_conv, op == POOL],
                [arriving, (arriving > 0).astype(np.float64), _POOL_KEEPS * arriving],
                0.0,
            )
            step = np.column_stack([op == CONV1, op == CONV3, op == POOL])
            total += leaving
            passed_total += leaving[:, None] * (passed[source] + step)
            untouched_total += leaving * np.where(is_conv, 0.0, untouched[source])
        safe = np.where(total > 0, total, 1.0)
        variance.append(total)
        passed.append(passed_total / safe[:, None])
        untouched.append(untouched_total / safe)
    return np.column_stack([np.log(variance[3] + 0.1), passed[3], untouched[3]])


def _words(live: NDArray[np.int64]) -> Floats:
    letters = (CONV1, CONV3, POOL)
    words = [word for length in range(4) for word in product(letters, repeat=length)]
    columns = [(live == op).astype(np.float64) for op in range(len(OPERATIONS))]
    counts = np.zeros((len(live), len(words)))
    number = {word: at for at, word in enumerate(words)}
    for row, cell in enumerate(live.tolist()):
        for path in PATHS:
            ops = [cell[edge] for edge in path]
            if NONE not in ops:
                counts[row, number[tuple(op for op in ops if op != SKIP)]] += 1
    return np.column_stack([*columns, counts])


def staged_views(fields: int, *, depth_field: int) -> tuple[FeatureView, ...]:
    """Views for networks of stages that make the same `fields` decisions each; choices (n, stages * fields).

    The summary holds the values, each decision's sum over the stages, each decision times the stage's depth (what a
    decision weighs grows with the layers it applies to), the sums of these, and log depth. The second view is one-hot.
    """

    def split(choices: Choices) -> Floats:
        choices = np.asarray(choices)
        if choices.ndim != 2 or choices.shape[1] % fields:
            raise ValueError(f"choices of shape {choices.shape} are not stages of {fields} decisions")
        return choices.reshape(len(choices), -1, fields).astype(np.float64)

    def summary(choices: Choices) -> Floats:
        stages = split(choices)
        depth = stages[:, :, depth_field : depth_field + 1]
        others = np.delete(stages, depth_field, axis=2)
        weighted = (others * depth).reshape(len(stages), -1)
        totals = (others * depth).sum(1)
        return np.column_stack([stages.reshape(len(stages), -1), stages.sum(1), weighted, totals])

    return summary, _fixed_one_hot


def _fixed_one_hot(choices: Choices) -> Floats:
    """One column per decision and value 0 to 7; columns without variation are dropped by whoever standardises."""
    codes = np.asarray(choices)[:, :, None] == np.arange(8)
    one_hot: Floats = codes.reshape(len(choices), -1).astype(np.float64)
    return one_hot


def chain_views(lengths: tuple[int, ...], *, widths: tuple[float, ...]) -> tuple[FeatureView, ...]:
    """Views for a chain of single-layer choices in stages; id 0 is the identity (a layer left out).

    `lengths` are the layers per stage, whose first layer changes the resolution; `widths[op]` is the expansion of an
    operation (0 for the identity). The summary holds every stage's depth and width and their logs and totals, and the
    first layers one-hot. The second view spells the other layers of a stage in order with identities moved to the
    end, which does not change the network.
    """
    starts = np.cumsum((0, *lengths))
    width_of = np.asarray(widths, dtype=np.float64)
    operations = range(len(widths))

    def stages(choices: Choices) -> list[NDArray[np.integer]]:
        choices = np.asarray(choices)
        if choices.ndim != 2 or choices.shape[1] != starts[-1]:
            raise ValueError(f"choices of shape {choices.shape} are not {starts[-1]} layers")
        return [choices[:, a:b] for a, b in pairwise(starts)]

    def summary(choices: Choices) -> Floats:
        parts = stages(choices)
        width = np.column_stack([width_of[part].sum(1) for part in parts])
        depth = np.column_stack([(part > 0).sum(1) for part in parts])
        total = width.sum(1, keepdims=True)
        first = [part[:, 0] == op for part in parts for op in operations]
        return np.column_stack([width, total, depth, depth.sum(1), np.log1p(width), np.log1p(total), *first]).astype(
            np.float64
        )

    def spelled(choices: Choices) -> Floats:
        columns = []
        for part in stages(choices):
            rest = part[:, 1:]
            ordered = np.take_along_axis(rest, np.argsort(rest == 0, axis=1, kind="stable"), axis=1)
            columns += [ordered == op for op in operations] + [part[:, :1] == op for op in operations]
        return np.concatenate(columns, axis=1).astype(np.float64)

    return summary, spelled
