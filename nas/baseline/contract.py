"""What may be lost: accuracies of two networks on the same examples, compared example by example."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nas.deploy.answers import matched_difference

Z_90 = 1.645
"""Standard deviations on each side of a 90 % interval."""

Verdict = Literal["kept", "kept, not proven", "missed"]


@dataclass(frozen=True, slots=True)
class PairedLoss:
    """Accuracy that one network has lost against another, as fractions; negative where it gained."""

    mean: float
    low: float
    high: float
    """Ends of the 90 % interval for the difference on further such examples."""
    examples: int
    worse: int
    """Examples that only the first network gets right."""
    better: int
    """Examples that only the second one gets right."""

    def verdict(self, allowed: float) -> Verdict:
        """`kept` where all of the interval is within what is allowed, `kept, not proven` where the mean is."""
        if self.high <= allowed + 1e-12:
            return "kept"
        return "kept, not proven" if self.mean <= allowed + 1e-12 else "missed"

    def to_json(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "interval": [self.low, self.high],
            "examples": self.examples,
            "worse": self.worse,
            "better": self.better,
        }


def paired_loss(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> PairedLoss:
    """What was lost from one network to the other.

    The interval is `nas.deploy.answers.matched_difference`'s, so that no difference at all is no proof.

    Args:
        before: (n,) whether the first network is right, n >= 1.
        after: (n,) the same of the second one, on the same examples.

    Raises:
        ValueError: they are not of the same examples, or there are none.
    """
    if before.shape != after.shape or before.ndim != 1 or not len(before):
        raise ValueError(f"pairs are (n,) of the same examples, got {before.shape} and {after.shape}")
    worse, better = int((before & ~after).sum()), int((~before & after).sum())
    n = len(before)
    centre, error = matched_difference(worse, better, n)
    return PairedLoss((worse - better) / n, centre - Z_90 * error, centre + Z_90 * error, n, worse, better)
