"""The order of candidates by what a full training will make of them, from what a short one has.

Short trainings favour networks that learn fast, and these are the small ones: of 24 networks the accuracy after one to
three of eight epochs orders the final ones with a Kendall tau of .12, .30 and .52, and together with the logarithm of
the MACs, both in standard deviations, with .41, .41 and .66 (docs/accuracy.md). In a search short trainings are shorter
still, and have equal times: the larger a network, the fewer images it has seen. What this costs on the average is added
back: of 24 networks of another space, trained briefly as a search does, the accuracy alone has a tau of -.11, the MACs
.51, both together .61.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nas.controller.trials import SHORT
from nas.controller.values import Evaluated, best_first
from nas.samplers import Worth
from nas.tasks import task_named
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

CAPACITY_WEIGHT = 1.25
"""Weight of a network's capacity beside the value, both in standard deviations of the candidates."""
LEAST_SHARE = 1 / 3
"""A candidate with less than this share of the best value has hardly begun to learn: its size alone is no promise."""
ENOUGH_EPOCHS = 10.0
"""A full training of fewer epochs uses as much less of the network's capacity."""

LEADERS, LEADING_STDS, FEWEST = 2, 1.0, 4
"""A candidate that would not be among so many most promising ones, were it for its size by so many standard deviations
better than any other, is not worth its short training; asked of no fewer candidates than these."""


def promise(
    values: Sequence[float], macs: Sequence[float], epochs: Sequence[float] | None = None
) -> NDArray[np.float64]:
    """What to order networks by, (n,), higher is better.

    Args:
        values: (n,) after short trainings.
        macs: (n,), whose logarithm is taken for the capacity.
        epochs: (n,) of the full training that each would get; None: enough.
    """
    capacity = np.log(np.maximum(macs, 1.0))
    if epochs is not None:
        capacity += np.minimum(0.0, np.log(np.maximum(epochs, 1e-3) / ENOUGH_EPOCHS))
    size, given = np.log(np.maximum(macs, 1.0)), np.asarray(values, dtype=np.float64)
    return _standard(given - _handicap(given, size) * size) + CAPACITY_WEIGHT * _standard(capacity)


def _handicap(values: NDArray[np.float64], size: NDArray[np.float64]) -> float:
    """What a unit of `size` costs in short trainings, a slope of at most 0: the median over all pairs of networks, so
    that one good network does not make it (Theil 1950, Sen 1968)."""
    one, other = np.triu_indices(len(size), 1)
    apart = np.abs(size[other] - size[one]) > 1e-9
    slopes: NDArray[np.float64] = (values[other] - values[one])[apart] / (size[other] - size[one])[apart]
    return min(0.0, float(np.median(slopes))) if len(slopes) else 0.0


def could_lead(values: Sequence[float], macs: Sequence[float], own_macs: float) -> bool:
    """True if a network may turn out to be one of the `LEADERS` most promising ones.

    Args:
        values: (n,) of the candidates so far, after short trainings.
        macs: (n,) of theirs.
        own_macs: of the network, which has not been trained.
    """
    if len(values) < FEWEST:
        return True
    given, sizes = np.asarray(values, dtype=np.float64), np.log(np.maximum(macs, 1.0))
    slope = _handicap(given, sizes)
    for_their_size = given - slope * sizes
    best = float(for_their_size.max() + LEADING_STDS * for_their_size.std() + slope * np.log(max(own_macs, 1.0)))
    found = promise([*values, best], [*macs, own_macs])
    return int((found[:-1] > found[-1]).sum()) < LEADERS


def size_promises(space: SearchSpace) -> bool:
    """See `nas.tasks.task.TrainingShape`."""
    return task_named(space.task).shape.size_promises


def chance_to_lead(space: SearchSpace, size: Size) -> Callable[[Sequence[Evaluated], Architecture], bool]:
    """`could_lead` as a search asks for it; `size` is that of the networks' answers."""

    def chance(evaluated: Sequence[Evaluated], arch: Architecture) -> bool:
        macs = space.costs(space.choices([*(e.arch for e in evaluated), arch]), size)["macs"].tolist()
        return could_lead([e.value for e in evaluated], macs[:-1], macs[-1])

    return chance


def worth_by_promise(space: SearchSpace, size: Size, epochs: Callable[[Choices], NDArray[np.float64]]) -> Worth:
    """`promise` as a sampler asks for it; `epochs` (n,) of the full training that each network would get."""

    def worth(values: NDArray[np.float64], choices: Choices) -> NDArray[np.float64]:
        return promise(values.tolist(), space.costs(choices, size)["macs"].tolist(), epochs(choices).tolist())

    return worth


def most_promising(
    evaluated: Sequence[Evaluated], space: SearchSpace, size: Size, full_image_s: float | None = None
) -> list[Evaluated]:
    """The candidates, the most promising first, those that hardly learnt anything last; by their values alone where
    these are no outcomes of short trainings, or where the size of a task's networks is no promise.

    Args:
        evaluated: candidates of `space`.
        space: the searched one.
        size: of the networks' answers, for their MACs.
        full_image_s: seconds of a full training for each training image, in all epochs together; None where no clock
            ends it.
    """
    if not size_promises(space) or not evaluated or any(e.estimator != SHORT for e in evaluated):
        return best_first(evaluated, lambda e: e.value)
    macs = space.costs(space.choices([e.arch for e in evaluated]), size)["macs"]
    epochs = None
    if full_image_s is not None:
        epochs = [full_image_s / e.seconds_per_image if e.seconds_per_image else ENOUGH_EPOCHS for e in evaluated]
    found = promise([e.value for e in evaluated], macs.tolist(), epochs)
    by_trial = dict(zip((e.trial for e in evaluated), found.tolist(), strict=True))
    least = LEAST_SHARE * max(e.value for e in evaluated)
    ordered = best_first(evaluated, lambda e: by_trial[e.trial])
    return sorted(ordered, key=lambda e: e.value < least)  # stable


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """In standard deviations from the mean; zeros where all are equal."""
    spread = values.std()
    return np.zeros_like(values) if spread <= 1e-12 else (values - values.mean()) / spread
