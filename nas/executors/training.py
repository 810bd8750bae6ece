"""The evaluation behind every search: a short training."""

import math

from nas.errors import UserError
from nas.evaluation.short_training import trained
from nas.executors.base import Evaluation, Failure, Outcome
from nas.networks.weights import weights_of
from nas.tasks import TaskData
from nas.training.result import EpochCallback


def train_briefly(task: Evaluation, data: TaskData, callback: EpochCallback | None = None) -> Outcome | Failure:
    """Train the network of `task`; what a network alone can do wrong is a `Failure`, not an exception."""
    try:
        network, result = trained(
            task.description, data, task.short, callback, validates="last" if callback is None else "each"
        )
    except (RuntimeError, MemoryError, UserError) as error:  # out of memory, or an operator that torch refuses
        return Failure(f"{type(error).__name__}: {error}")
    if result.stopped == "diverged":
        return Failure("training diverged")
    if not math.isfinite(result.accuracy):
        return Failure(f"its accuracy is {result.accuracy}")
    return Outcome(
        accuracy=result.accuracy,
        curve=tuple(log.val_accuracy for log in result.curve if math.isfinite(log.val_accuracy)),
        seconds=result.seconds,
        image_s=result.image_s,
        stopped_early=result.stopped == "pruned by callback",
        epochs=len(result.curve),
        stopped=result.stopped,
        weights=weights_of(network),
    )
