"""How the wide path of a network begins: as the naive-Bayes classifier of its training texts.

Wang and Manning 2012 ("Baselines and bigrams", https://aclanthology.org/P12-2018) scale features by such ratios; here
they are the first weights, so that a network starts as good as that classifier and learns from there.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import nn

    from search_spaces.text_modules import Wide

SMOOTHING = 1.0
"""Occurrences that each token is thought to have had besides, shared by the classes as all tokens are."""
SCALES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
"""Factors of the scores that are tried: tokens are not independent, so their sum is too sure."""


def begin_wide(network: "nn.Module", ids: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> None:
    """Set the tables of a network's wide path, where it has one that nothing has been learnt in, from training texts.

    Args:
        network: is changed in place.
        ids: (n, tokens), as the network takes them.
        labels: (n,).
        classes: number of classes.
    """
    import torch

    from search_spaces.text_modules import Wide, pair_entries

    wide = getattr(network, "wide", None)
    if not isinstance(wide, Wide) or any(bool(table.weight.any()) for table in _tables(wide)):
        return
    entries = [ids, pair_entries(torch.from_numpy(ids)).numpy()]
    tables, sums = [], np.zeros((len(ids), classes))
    for table, found in zip(_tables(wide), entries, strict=False):
        scores, own = ratios(found, labels, len(table.weight), classes)
        tables.append(scores)
        sums += own
    scale = min(SCALES, key=lambda factor: _cross_entropy(factor * sums, labels))
    with torch.no_grad():
        for table, scores in zip(_tables(wide), tables, strict=True):
            table.weight.copy_(torch.from_numpy(scale * scores))


def ratios(
    entries: NDArray[np.int64], labels: NDArray[np.int64], size: int, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms (size, classes) of how much likelier a class is with an entry than without, and for each text their
    sum (n, classes) by what the other texts alone say.

    Args:
        entries: (n, t) places in a table of `size`; 0 is none.
        labels: (n,).
        size: of the table.
        classes: number of classes.
    """
    counts = np.zeros((size, classes))
    there = entries != 0
    np.add.at(counts, (entries[there], np.broadcast_to(labels[:, None], entries.shape)[there]), 1.0)
    share = counts.sum(axis=0) / counts.sum()

    def scores(found: NDArray[np.float64]) -> NDArray[np.float64]:
        shares = (found + SMOOTHING * share) / (found.sum(axis=-1, keepdims=True) + SMOOTHING)
        logs: NDArray[np.float64] = np.log(np.maximum(shares, 1e-9) / np.maximum(share, 1e-9))
        return logs

    own = np.eye(classes)[labels]
    left_out = np.zeros((len(entries), classes))
    for place in range(entries.shape[1]):
        at = entries[:, place]
        left_out += scores(counts[at] - own * (at != 0)[:, None]) * (at != 0)[:, None]
    table = scores(counts)
    table[0] = 0.0
    return table, left_out


def _tables(wide: "Wide") -> "list[torch.nn.Embedding]":
    return [wide.words] if wide.pairs is None else [wide.words, wide.pairs]


def _cross_entropy(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return float(-logs[np.arange(len(labels)), labels].mean())
