"""How the wide path of a network begins: as a linear model of its training texts, fitted in about a second.

Logistic regression on TF-IDF features of tokens, of the tokens that these were merged of (as fastText's parts of words,
Bojanowski et al. 2017, https://arxiv.org/abs/1607.04606) and of pairs of tokens. Whatever hangs on one token alone adds
up to one entry of a table, so that the wide path computes just this model (`search_spaces.text_modules.Wide`). A
network starts as good as it is, and learns from there.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.tasks.text.tokenizer import TextPreprocess

if TYPE_CHECKING:
    from torch import nn

PENALTY = 10.0
"""Inverse strength of the penalty on the weights."""
ITERATIONS, TOLERANCE = 100, 1e-4
"""Of L-BFGS. With a tolerance of 1e-3 it ended early: on held-out texts of SST-2 its accuracy was 2 points lower, in
the mean of four divisions."""


def begin_wide(
    network: "nn.Module",
    preprocess: TextPreprocess,
    ids: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: int,
    *,
    weights: Sequence[float] | None,
) -> None:
    """Set the tables of a network's wide path, where it has one that nothing has been learnt in, from training texts.

    At first it says all: the last layer of the rest has no weights but the linear model's constants.

    Args:
        network: is changed in place.
        preprocess: knows what tokens were merged of.
        ids: (n, tokens), as the network takes them.
        labels: (n,).
        classes: number of classes.
        weights: of the classes in the loss; None: all the same.
    """
    import torch

    from search_spaces.text_modules import TextHead, Wide, pair_entries

    wide, head = getattr(network, "wide", None), getattr(network, "head", None)
    if not isinstance(wide, Wide) or not isinstance(head, TextHead):
        return
    if any(bool(table.weight.any()) for table in wide.tables) or len(np.unique(labels)) < 2:
        return
    entries = [ids] if wide.pairs is None else [ids, pair_entries(torch.from_numpy(ids)).numpy()]
    sizes = [len(table.weight) for table in wide.tables]
    members = preprocess.members(sizes[0])
    tables, constants = fitted_tables(entries, sizes, members, labels, classes, weights=weights)
    with torch.no_grad():
        for table, values in zip(wide.tables, tables, strict=True):
            table.weight.copy_(torch.from_numpy(values))
        # Or what the rest says at first by chance would spoil it.
        torch.nn.init.zeros_(head.linear.weight)
        head.linear.bias.copy_(torch.from_numpy(constants))


def fitted_tables(
    entries: Sequence[NDArray[np.int64]],
    sizes: Sequence[int],
    members: Sequence[Sequence[int]],
    labels: NDArray[np.int64],
    classes: int,
    *,
    weights: Sequence[float] | None,
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """For each table its values (size, classes + 1): sums over the features that an entry stands for, of their weights
    times inverse document frequency, and of the squares of that frequency; and the constants (classes,).

    Args:
        entries: for each table (n, t) places in it; 0 is none.
        sizes: of the tables.
        members: for the first entries of the first table, the features that they stand for: entries, itself too.
        labels: (n,).
        classes: number of classes.
        weights: of the classes in the loss; None: all the same.
    """
    from scipy.sparse import csr_array, diags_array, hstack
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    n = len(labels)
    parts = []
    for found, size in zip(entries, sizes, strict=True):
        rows, columns = np.nonzero(found)
        parts.append(csr_array((np.ones(len(rows)), (rows, found[rows, columns])), shape=(n, size)))
    places = sum(sizes)
    # What an entry stands for: itself, and in the first table what its token was merged of.
    rows = np.concatenate(
        [np.repeat(np.arange(len(members)), [len(m) for m in members]), np.arange(len(members), places)]
    )
    columns = np.concatenate([*map(np.asarray, members), np.arange(len(members), places)])
    stands_for: Any = csr_array((np.ones(len(rows)), (rows, columns)), shape=(places, places))
    counts: Any = csr_array(hstack(parts)) @ stands_for
    with_it = np.bincount(counts.indices, minlength=counts.shape[1])
    # As scikit-learn's TfidfTransformer; entries of no training text have no weight.
    inverse = np.where(with_it > 0, np.log((1 + n) / (1 + with_it)) + 1, 0.0)
    norms = np.sqrt(np.maximum(counts @ inverse**2, 1.0))
    features = csr_array(diags_array(1 / norms) @ counts @ diags_array(inverse))
    balance = None if weights is None else dict(enumerate(weights))
    model = LogisticRegression(C=PENALTY, max_iter=ITERATIONS, class_weight=balance, tol=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(features, labels)
    learnt, constants = np.zeros((classes, counts.shape[1])), np.zeros(classes)
    if len(model.classes_) == 2:  # one row, of the second class
        learnt[model.classes_] = np.concatenate([-model.coef_, model.coef_]) / 2
        constants[model.classes_] = np.concatenate([-model.intercept_, model.intercept_]) / 2
    else:
        learnt[model.classes_], constants[model.classes_] = model.coef_, model.intercept_
    values = stands_for @ np.concatenate([learnt.T * inverse[:, None], inverse[:, None] ** 2], axis=1)
    values[0] = 0.0
    return np.split(values, np.cumsum(sizes)[:-1]), constants
