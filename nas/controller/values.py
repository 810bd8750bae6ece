"""Results of a search's steps as plain values: candidates evaluated or failed, finalists, the random baseline."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nas.controller.runs.records import Trained
from nas.controller.trials import SHORT
from nas.deploy.tried import Deployed
from nas.evaluation.estimators import ESTIMATORS
from nas.limits import Violation
from search_spaces import Architecture


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A candidate and what it was found to be worth."""

    arch: Architecture
    trial: int
    value: float
    """Higher is better, in the unit of the estimator: by default the fraction of the validation split after a short
    training."""
    seconds: float
    seconds_per_image: float | None = None
    """Seconds per image of a training that is validated once; None where it was not trained."""
    interval: tuple[float, float] | None = None
    """90 %, as far as the estimator knows."""
    estimator: str = SHORT

    @property
    def accuracy(self) -> float | None:
        """The value, where that is an accuracy."""
        return self.value if ESTIMATORS[self.estimator].unit == "accuracy" else None

    @property
    def short_accuracy(self) -> float | None:
        """The value, where the candidate was trained briefly."""
        return self.value if self.estimator == SHORT else None


@dataclass(frozen=True, slots=True)
class Failed:
    """A candidate that could not be evaluated."""

    arch: Architecture
    trial: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A fully trained and deployed candidate."""

    evaluated: Evaluated
    trained: Trained
    deployed: Deployed
    violations: tuple[Violation, ...]
    """The limits that its best deployment misses; of all deployments where none was chosen."""
    call_ms: float
    """A call of the chosen deployment, at the limits' percentile; its predicted upper bound where nothing is
    measured; inf where none was chosen."""
    images_per_s: float
    """Throughput of the chosen deployment, by its median call; 0 where none was chosen."""
    test: Mapping[str, float] | None
    """Figures of the deployed file on the test split, the metric first; None where no deployment was accepted."""

    @property
    def within_limit(self) -> bool:
        return self.deployed.chosen is not None

    @property
    def deployed_accuracy(self) -> float:
        """Fraction of the validation split in the chosen deployment; -1 where there is none."""
        chosen = self.deployed.chosen
        return -1.0 if chosen is None or chosen.accuracy is None else chosen.accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomBaseline:
    """The random baseline: everything it evaluated, what it trained fully, and the best of that."""

    evaluated: tuple[Evaluated, ...]
    finalists: tuple[Finalist, ...]
    finalist: Finalist


def best_first(evaluated: Sequence[Evaluated], key: Callable[[Evaluated], float]) -> list[Evaluated]:
    """Highest `key` first; equal ones in order of their trials."""
    order = np.lexsort(([e.trial for e in evaluated], [-key(e) for e in evaluated]))
    return [evaluated[i] for i in order]
