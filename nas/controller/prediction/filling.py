"""Known designs made to fill a tight limit, and measured.

A search proposes well-known designs first. Under a tight limit some of them exceed it by a little and others leave a
third of it unused, while accuracy grows with what a network computes. So their widths and depths are changed together,
as networks are scaled (Tan and Le 2019, https://arxiv.org/abs/1905.11946), until the limit is just kept. The result is
measured: predictions of networks that are unlike those of the profile are wrong by more than is to be gained.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nas.controller.prediction.edge import PREPARED_S, SECONDS, TIGHT_SHARE, is_tight, session_seconds, shares
from nas.controller.prediction.feasibility import SAMPLES
from nas.controller.prediction.target_model import Designs, TargetModel
from nas.deployment import ALONE, Deployment
from nas.limits import Limits
from nas.progress import Progress
from nas.targets.preparing import OUTPUT_SIZE
from nas.targets.profiling import measure_networks
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

FILLED = "well-known designs were made to fill the limit"
SIZES = ("width", "depth")
"""Last parts of the names of decisions that make a network larger."""
FULL, ENOUGH = 0.95, 0.87
"""Designs are made to take so much of the limit; where they are measured to take less than the second, or more than
both allow, they are made anew by what was measured."""
DESIGNS, DEPLOYMENTS, ROUNDS = 4, 2, 3
"""Most designs that are measured, most deployments of each, and most times that each is measured."""

Share = Callable[[Choices], NDArray[np.float64]]
"""(n, decisions) -> (n,): of its limit that each network takes, as expected."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A design as it was made last, and the factor by which networks like it take longer than predicted.

    The factor is 1 where they take less: what a prediction forbids is not compared, whatever was measured.
    """

    design: tuple[Architecture, ...]
    arch: Architecture
    factor: float = 1.0
    share: float = math.inf
    """Of the limit, as measured."""

    @property
    def keeps(self) -> bool:
        return self.share <= (1.0 + FULL) / 2

    @property
    def is_good(self) -> bool:
        return self.keeps and self.share >= ENOUGH


def filled(space: SearchSpace, arch: Architecture, share: Share, size: Size) -> Architecture | None:
    """`arch` with widths and depths changed until the next larger one would have a `share` above 1.

    Each step changes the decision that was changed least so far, and among these the one that computes the most for the
    time. None where even the narrowest network takes longer, or where nothing can be changed and `arch` does.
    """
    (start,) = space.choices([arch])
    row = start
    while share(row[None])[0] > 1.0:
        narrower = _step(space, row, start, share, size, -1)
        if narrower is None:
            return None
        row = narrower
    while (wider := _step(space, row, start, share, size, 1)) is not None:
        row = wider
    return space.architecture(row)


def with_filled_designs(
    target: TargetModel, space: SearchSpace, size: Size, limits: Limits, seed: int, progress: Progress,
    budget_s: float = math.inf,
) -> TargetModel | None:  # fmt: skip
    """The target with `designs` that fill a limit on calls which most of the space exceeds.

    None where there are none: other limits count as well, most of the space keeps the limit, nothing can be measured,
    the time is too short (`TIGHT_SHARE` of `budget_s`), the space names no widths or depths, or no design can be made
    to keep the limit.
    """
    if target.site is None or not on_calls_alone(limits) or not _sizes(space):
        return None
    rng = np.random.default_rng(seed)
    sampled = space.sample(SAMPLES, rng)
    if not is_tight(target.model, space, sampled, size, limits):
        return None
    made = _made(target, space, size, limits, [_Made(design, design[0]) for design in space.designs])
    near = _nearest(target, space, size, limits, [m.arch for m in made])
    each_s = PREPARED_S + len(near) * max((session_seconds(d.interval_ms) for d in near), default=0.0)
    made = made[: int(min(DESIGNS, TIGHT_SHARE * budget_s / each_s / 2))]  # about half are made anew once
    if not made:
        return None
    progress.note(f"{FILLED}: measuring {len(made)} of them")
    kept: dict[str, _Made] = {}
    seen: set[str] = set()
    for number in range(ROUNDS):
        seen |= {m.arch.key for m in made}
        made = _measured(target, space, size, limits, near, seed, made)
        for one in made:
            if one.keeps and (one.design[0].key not in kept or one.share > kept[one.design[0].key].share):
                kept[one.design[0].key] = one
        anew = [m for m in made if not m.is_good and math.isfinite(m.share)]
        if number + 1 < ROUNDS:
            made = [m for m in _made(target, space, size, limits, anew) if m.arch.key not in seen]
        if not made:
            break
    found = tuple({m.arch.key: m.arch for m in kept.values()}.values())
    if not found:
        return None
    words = f"{FILLED}: {len(found)} of other widths and depths were measured to keep it"
    limit_ms = limits.call_limit_ms(target.model.deployments[0].batch)
    return replace(target, designs=Designs(found, limit_ms), notes=(*target.notes, words))


def on_calls_alone(limits: Limits) -> bool:
    """True if nothing but the median of a call is limited beforehand."""
    return not limits.limits_tail and all(limit.by_latency for limit in limits.predicted)


def trainable(
    designs: Designs | None, space: SearchSpace, affordable: Callable[[Choices], NDArray[np.bool_]] | None
) -> tuple[Architecture, ...] | None:
    """Those whose training is `affordable` (None: all); None where none is known."""
    if designs is None or affordable is None:
        return None if designs is None else designs.archs
    kept = affordable(space.choices(designs.archs))
    return tuple(arch for arch, keeps in zip(designs.archs, kept, strict=True) if keeps) or None


def _made(target: TargetModel, space: SearchSpace, size: Size, limits: Limits, asked: Sequence[_Made]) -> list[_Made]:
    """Each design made to fill the limit by its factor, with the input for which it changes least; those that compute
    the most first, each network once."""
    found: dict[str, _Made] = {}
    for one in asked:

        def share(choices: Choices, factor: float = one.factor) -> NDArray[np.float64]:
            of_limit: NDArray[np.float64] = factor * shares(target.model, space, choices, size, limits) / FULL
            return of_limit

        fits = [(arch, filled(space, arch, share, size)) for arch in one.design]
        changes = [
            (int(np.abs(np.subtract(*space.choices([arch, fit]))).sum()), place)
            for place, (arch, fit) in enumerate(fits)
            if fit is not None
        ]
        if changes:
            fit = fits[min(changes)[1]][1]
            assert fit is not None
            found.setdefault(fit.key, replace(one, arch=fit, share=math.inf))
    macs = space.costs(space.choices([m.arch for m in found.values()]), size)["macs"] if found else np.empty(0)
    return [m for _, m in sorted(zip(macs, found.values(), strict=True), key=lambda pair: -pair[0])]


def _nearest(
    target: TargetModel, space: SearchSpace, size: Size, limits: Limits, archs: Sequence[Architecture]
) -> list[Deployment]:
    """The deployments in which the most of these networks are expected to be fastest, beside their limits."""
    if not archs:
        return []
    predicted = target.model.predict(space, space.choices(list(archs)), size)
    of_limit = {d: p.mean / limits.call_limit_ms(d.batch) for d, p in predicted.items()}
    return sorted(of_limit, key=lambda d: float(np.median(of_limit[d])))[:DEPLOYMENTS]


def _measured(
    target: TargetModel, space: SearchSpace, size: Size, limits: Limits, near: Sequence[Deployment], seed: int,
    made: Sequence[_Made],
) -> list[_Made]:  # fmt: skip
    """Each with the share of the limit that it was measured to take in its best deployment, and its factor."""
    assert target.site is not None
    archs = [m.arch for m in made]
    alone = [d.covering(ALONE) for d in near]
    rows = measure_networks(archs, alone, sessions=1, seconds_per_model=SECONDS, seed=seed, measure=target.site.measure)
    choices = space.choices(archs)
    model = target.model.of_networks()
    networks, measured = model.predict(space, choices, size), model.predict(space, choices, OUTPUT_SIZE)
    whole = target.model.predict(space, choices, size)
    took = np.full((len(near), len(made)), math.inf)
    for i, (deployment, bare) in enumerate(zip(near, alone, strict=True)):
        around_ms = whole[deployment].mean - networks[bare].mean
        larger = networks[bare].mean / measured[bare].mean  # by the last layer: they are measured with a usual one
        for j, row in enumerate(rows):
            if row[i].failed is None:
                took[i, j] = (larger[j] * row[i].p50_ms + around_ms[j]) / limits.call_limit_ms(deployment.batch)
    expected = np.min([whole[d].mean / limits.call_limit_ms(d.batch) for d in near], axis=0)
    best = took.min(axis=0)
    return [
        replace(m, share=float(s), factor=max(1.0, float(s / e))) if math.isfinite(s) else replace(m, share=math.inf)
        for m, s, e in zip(made, best, expected, strict=True)
    ]


def _step(
    space: SearchSpace, row: NDArray[np.int64], start: NDArray[np.int64], share: Share, size: Size, direction: int
) -> NDArray[np.int64] | None:
    """`row` with one width or depth one option larger (1) or smaller (-1); None where none helps."""
    rows = [moved for column in _sizes(space) if (moved := _moved(space, row, column, direction)) is not None]
    if not rows:
        return None
    found = space.canonical(np.stack(rows))
    every = np.concatenate([row[None], found])
    of_limit, work = share(every), np.log(np.maximum(space.costs(every, size)["macs"], 1.0))
    time, more = direction * (of_limit[1:] - of_limit[0]), direction * (work[1:] - work[0])
    helps = (more > 0) & ((of_limit[1:] <= 1.0) if direction > 0 else (time > 0))
    if not helps.any():
        return None
    changed = np.abs(found - start).max(axis=1)
    worth = direction * more / np.maximum(time, 1e-9)
    best = np.lexsort((-worth, changed, ~helps))[0]
    chosen: NDArray[np.int64] = found[best]
    return chosen


def _moved(space: SearchSpace, row: NDArray[np.int64], column: int, direction: int) -> NDArray[np.int64] | None:
    """`row` with the next allowed option of a column in that direction."""
    values = [float(option) for option in space.decisions[column].options]
    now = values[row[column]]
    beyond = [option for option in space.allowed[column] if direction * (values[option] - now) > 0]
    if not beyond:
        return None
    moved = row.copy()
    moved[column] = min(beyond, key=lambda option: abs(values[option] - now))
    return moved


def _sizes(space: SearchSpace) -> list[int]:
    """Columns of widths and depths whose options are numbers."""
    return [
        column
        for column, decision in enumerate(space.decisions)
        if decision.name.rpartition(".")[2] in SIZES
        and all(isinstance(option, int | float) for option in decision.options)
    ]
