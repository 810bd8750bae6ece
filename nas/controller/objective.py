"""The objective of a search: it decides which candidates become finalists, and which finalists win."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from nas.controller.config import Objective
from nas.controller.values import Evaluated, Finalist

FRONT_TURNS = (1.0, 0.0, 0.5, 0.25, 0.75)
"""Places of the finalists on a front's log latency, from 0 (fastest) to 1, in the order they are trained: both ends
first."""

Ending = Literal["kept", "inaccurate", "missed"]
"""What came of a finalist: it keeps every limit; each of its files lacks the least accuracy; or something else keeps it
from being delivered."""

Latency = Callable[[Evaluated], float]
"""Predicted latency in ms."""


def finalist_pool(objective: Objective, promising: Sequence[Evaluated], latency_ms: Latency) -> list[Evaluated]:
    """Candidates that may become finalists: for accuracy all, in the order given, the most `promising` first; else the
    front of latency and accuracy after the short trainings, fastest first."""
    if objective == "accuracy":
        return list(promising)
    front: list[Evaluated] = []
    for candidate in sorted(promising, key=lambda e: (latency_ms(e), -e.value, e.trial)):
        if not front or candidate.value > front[-1].value:
            front.append(candidate)
    return front


def next_finalist(
    objective: Objective, pool: Sequence[Evaluated], done: Mapping[str, Ending], latency_ms: Latency
) -> Evaluated | None:
    """Next finalist to train; None if no remaining candidate could be better.

    `pool` is in the order of `finalist_pool`; `done` tells what came of trained ones (by key). For the fastest network
    above an accuracy this halves the front: who keeps every limit makes all slower ones needless, who lacks accuracy
    all faster ones. Who misses another limit, such as a latency by a little, says nothing against faster ones.
    """
    left = [i for i, e in enumerate(pool) if e.arch.key not in done]
    if objective == "accuracy" or not left:
        return pool[left[0]] if left else None
    if objective == "pareto":
        return pool[min(left, key=lambda i: abs(_turn(len(done)) - _place(pool, i, latency_ms)))]
    kept = [i for i, e in enumerate(pool) if done.get(e.arch.key) == "kept"]
    inaccurate = [i for i, e in enumerate(pool) if done.get(e.arch.key) == "inaccurate"]
    if not done:
        return pool[-1]  # the most accurate one: whether the accuracy can be kept at all
    left = [i for i in left if i > max(inaccurate, default=-1) and i < min(kept, default=len(pool))]
    return pool[left[len(left) // 2]] if left else None


def winners(objective: Objective, finalists: Sequence[Finalist], count: int) -> list[Finalist]:
    """At most `count` of the finalists that keep every limit, best first.

    Accuracy: by the accuracy of the deployed file, the faster first among equals. Latency and throughput: fastest
    first. Pareto: those no other beats in both, the most accurate first.
    """
    kept = [f for f in finalists if f.within_limit]
    if objective == "accuracy":
        return sorted(kept, key=lambda f: (-f.deployed_accuracy, f.call_ms))[:count]
    if objective == "latency":
        return sorted(kept, key=lambda f: (f.call_ms, -f.deployed_accuracy))[:count]
    if objective == "throughput":
        return sorted(kept, key=lambda f: (-f.images_per_s, -f.deployed_accuracy))[:count]
    front: list[Finalist] = []
    for finalist in sorted(kept, key=lambda f: (f.call_ms, -f.deployed_accuracy)):
        if not front or finalist.deployed_accuracy > front[-1].deployed_accuracy:
            front.append(finalist)
    if len(front) > count:
        # both ends, and what lies between evenly
        front = [front[round(i * (len(front) - 1) / max(1, count - 1))] for i in range(count)]
    return front[::-1]


def _turn(done: int) -> float:
    return FRONT_TURNS[done % len(FRONT_TURNS)]


def _place(pool: Sequence[Evaluated], index: int, latency_ms: Latency) -> float:
    """Position of a candidate between the fastest (0) and the slowest (1) of the front, in log latency."""
    logs = [math.log(latency_ms(pool[i])) for i in (0, index, len(pool) - 1)]
    return (logs[1] - logs[0]) / (logs[2] - logs[0]) if logs[2] > logs[0] else 1.0
