"""Text classification: its metrics. `nas.tasks.text.task` is the task."""

import numpy as np
from numpy.typing import NDArray

ACCURACY = "accuracy"


def answers(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """(n,) the class of each row of logits (n, c); -1 where they are not finite."""
    return np.where(np.isfinite(logits).all(axis=1), logits.argmax(axis=1), -1).astype(np.int64)


def f1_scores(found: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """(classes,) harmonic mean of precision and recall of each class, from answers and labels (n,); NaN where no text
    is of the class, 0 where none of its texts was found."""
    right = np.bincount(labels[found == labels], minlength=classes)
    true = np.bincount(labels, minlength=classes)
    said = np.bincount(found[found >= 0], minlength=classes)
    scores = 2 * right / np.maximum(true + said, 1)
    return np.where(true > 0, scores, np.nan)


def macro_f1(found: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Mean F1 score of the classes that there are texts of (Sokolova and Lapalme 2009)."""
    return float(np.nanmean(f1_scores(found, labels, int(max(found.max(), labels.max())) + 1)))
