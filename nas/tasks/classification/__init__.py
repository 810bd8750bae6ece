"""Image classification: its loss and its metric. `nas.tasks.classification.task` is the task."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def loss(logits: "torch.Tensor", targets: "torch.Tensor", label_smoothing: float = 0.0) -> "torch.Tensor":
    """Mean cross-entropy, a float32 scalar.

    Args:
        logits: (n, c), any float type (computed in float32).
        targets: (n,) int64 class indices.
        label_smoothing: share of the target spread evenly over all classes (Szegedy et al. 2016).
    """
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.float(), targets, label_smoothing=label_smoothing)


def top1_correct(logits: "torch.Tensor", targets: "torch.Tensor") -> int:
    """Number of rows of (n, c) `logits` that are largest at their (n,) `targets`. Rows that are not finite are
    wrong."""
    hits = (logits.argmax(dim=1) == targets) & logits.isfinite().all(dim=1)
    return int(hits.sum())


def top1_agreement(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Fraction of rows of two (n, c) logits that are largest at the same class."""
    return float((got.argmax(axis=1) == expected.argmax(axis=1)).mean())
