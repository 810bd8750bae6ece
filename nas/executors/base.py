"""Evaluations and their outcomes: plain values, so that they travel to any process on any machine."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nas.evaluation.short_training import ShortTraining
from nas.networks.description import NetworkDescription
from nas.tasks import TaskData
from nas.training.result import EpochCallback, Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One network to be evaluated by a short training. The recipe holds the seed."""

    study: str
    trial: int
    """The study and its trial that asked for it; they come back with the result."""
    description: NetworkDescription
    data: str
    """Name of the data set: the executor that runs this was made with it."""
    short: ShortTraining

    def to_json(self) -> dict[str, Any]:
        """Everything that decides the outcome: equal documents, equal outcomes."""
        return {
            "network": self.description.to_json(),
            "data": self.data,
            "recipe": self.short.recipe.to_json(),
            "train_images": self.short.train_images,
            **({} if self.short.validate_every == 1 else {"validate_every": self.short.validate_every}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a training that ended well."""

    accuracy: float
    """Fraction of the validation split."""
    curve: tuple[float, ...]
    """The same after each finished epoch."""
    seconds: float
    image_s: float | None = None
    """Seconds of training per image, without validation; None where no epoch was finished."""
    stopped_early: bool = False
    """True if its curve was found hopeless before all epochs were done."""
    epochs: int = 0
    """Finished ones."""
    stopped: Stopped | None = None
    """Reason why it ended before its last epoch, if it did."""
    weights: bytes | None = field(default=None, repr=False)
    """Weights of the trained network, as a safetensors file; None where whoever trained it does not hand them out."""

    def to_json(self) -> dict[str, Any]:
        """All but the weights."""
        return asdict(replace(self, weights=None))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Outcome":
        """Inverse of `to_json`."""
        return cls(**{**document, "curve": tuple(document["curve"])})


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why there is no outcome, in words for the user."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """An evaluation that came to its end, a good one or not."""

    task: Evaluation
    result: Outcome | Failure


Evaluate = Callable[[Evaluation, TaskData, EpochCallback | None], Outcome | Failure]
"""Evaluates one network: a function of a module, so that another process can import it. Calls the callback (if any)
after each epoch, and ends the training where that returns True."""
