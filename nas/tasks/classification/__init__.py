"""Image classification: its loss and its metric. `nas.tasks.classification.task` is the task."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def loss(
    logits: "torch.Tensor",
    targets: "torch.Tensor",
    label_smoothing: float = 0.0,
    class_weights: "torch.Tensor | None" = None,
) -> "torch.Tensor":
    """Mean cross-entropy, a float32 scalar.

    Args:
        logits: (n, c), any float type (computed in float32).
        targets: (n,) int64 class indices, or (n, c) shares of the classes.
        label_smoothing: share of the target spread evenly over all classes (Szegedy et al. 2016).
        class_weights: (c,) float32, how much an example of each class weighs in the mean; None: all the same.
    """
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.float(), targets, weight=class_weights, label_smoothing=label_smoothing)


def top1_hits(logits: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
    """(n,) bool, whether each row of (n, c) `logits` is largest at its (n,) `targets`. Rows that are not finite are
    wrong."""
    return (logits.argmax(dim=1) == targets) & logits.isfinite().all(dim=1)


def balanced_accuracy(hits: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    """Mean over the classes among `labels` (n,) of the share of their examples that were answered right (`hits`, (n,)).

    (Brodersen et al. 2010, "The balanced accuracy and its posterior distribution".)
    """
    counts = np.bincount(labels)
    right = np.bincount(labels, weights=hits, minlength=len(counts))
    return float((right[counts > 0] / counts[counts > 0]).mean())


def top1_agreement(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Fraction of rows of two (n, c) logits that are largest at the same class."""
    return float((got.argmax(axis=1) == expected.argmax(axis=1)).mean())
