"""Which examples a network answers right: what was asked about the same examples is compared example by example."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.tasks.task import Run, Task, TaskSplit
from search_spaces import Signature


@dataclass(frozen=True, slots=True)
class Answers:
    """Whether a network is right about each of a split's examples."""

    right: bytes
    """A bit for each example, as `numpy.packbits` puts them: the first one is the highest of the first byte."""
    examples: int

    def __post_init__(self) -> None:
        if len(self.right) != -(-self.examples // 8):
            raise ValueError(f"{self.examples} answers do not fit {len(self.right)} bytes")

    @classmethod
    def of(cls, hits: NDArray[np.bool_]) -> "Answers":
        """Those of (n,) hits."""
        return cls(np.packbits(hits).tobytes(), len(hits))

    @property
    def hits(self) -> NDArray[np.bool_]:
        """(n,) whether each answer is right."""
        return np.unpackbits(np.frombuffer(self.right, np.uint8), count=self.examples).astype(np.bool_)

    @property
    def share(self) -> float:
        """Share of right answers; nan without examples."""
        return int(self.hits.sum()) / self.examples if self.examples else math.nan

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads; the bits are written in hexadecimal."""
        return {"examples": self.examples, "right": self.right.hex()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Answers":
        return cls(bytes.fromhex(document["right"]), int(document["examples"]))


class AnswersKept:
    """A `Run` that keeps which of the examples it was asked about, in the order of the split, it answered right."""

    def __init__(self, run: Run, task: Task[Any, Any], split: TaskSplit, signature: Signature) -> None:
        self._run, self._task, self._split, self._signature = run, task, split, signature
        self._hits: list[NDArray[np.bool_]] | None = []  # None where the task counts no right answers
        self._asked = 0

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        outputs = self._run(inputs)
        if self._hits is not None:
            asked = np.arange(self._asked, min(self._asked + len(outputs), len(self._split)))
            hits = self._task.hits(outputs[: len(asked)], self._split.take(asked), self._signature)
            self._asked += len(asked)
            if hits is None:
                self._hits = None
            else:
                self._hits.append(hits)
        return outputs

    def answers(self, accuracy: float) -> Answers | None:
        """All of them; None where `accuracy`, the task's metric (a fraction), is not the share of right ones."""
        if not self._hits or self._asked != len(self._split):
            return None
        found = Answers.of(np.concatenate(self._hits))
        return found if abs(found.share - accuracy) < 1e-9 else None


def matched_difference(worse: int, better: int, examples: int) -> tuple[float, float]:
    """Estimate of the difference between two shares of right answers to the same examples, and its standard error.

    With half an example more in each of the four cells (Agresti and Min 2005, "Improved confidence intervals for
    comparing matched proportions"), so that no difference at all is no proof.

    Args:
        worse: examples that only the first network gets right.
        better: examples that only the second one gets right.
        examples: of all.

    Returns:
        What the second one loses against the first one, and the standard error of that: fractions.
    """
    b, c, m = worse + 0.5, better + 0.5, examples + 2
    return (b - c) / m, math.sqrt((b + c) - (b - c) ** 2 / m) / m


def difference_error(one: Answers, other: Answers) -> float:
    """Standard error (a fraction) of the difference between the accuracies of two networks on the same examples.

    Raises:
        ValueError: they are not of equally many examples.
    """
    if one.examples != other.examples:
        raise ValueError(f"pairs are of the same examples, got {one.examples} and {other.examples}")
    a, b = one.hits, other.hits
    return matched_difference(int((a & ~b).sum()), int((~a & b).sum()), one.examples)[1]
