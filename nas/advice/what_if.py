"""What each change of one decision would save, by the latency model of a target: all neighbours of an architecture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.deployment import CPU, Deployment
from nas.errors import UserError
from nas.targets.latency import Z_90, LatencyModel
from nas.targets.priors import prior_profiles
from nas.targets.profile import DeviceProfile
from nas.targets.registry import Target
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

NETWORK = "network"
"""The block of a decision that belongs to no part of a network."""
LEAST_MACS = 0.01
"""Share of the network's MACs that counts at least, where savings are compared per MAC removed: a saving that removes
next to nothing, or adds MACs, would otherwise be worth any amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One change of an architecture and what it is predicted to save."""

    block: str
    """The part of the space whose decision it is: `stage2`, `stem`, or `network`."""
    decision: str
    """`kernel`, `expansion`, `width`, `depth`, `family`, ..."""
    change: str
    """For people: `kernel 5 -> 3`."""
    architecture: Architecture
    modules: tuple[str, ...]
    """Modules of the network's blocks that it changes, as rows of the table are named; empty where the space does not
    name them."""
    saves_ms: float
    """Predicted; negative where it costs time."""
    std_ms: float
    d_macs: int
    """MACs after the change minus those before."""
    worth: float
    """Milliseconds saved per share of the network's MACs removed, see `LEAST_MACS`; what the list is sorted by."""
    measured_ms: float | None = None
    """What it really saved, where it was built and measured."""

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90 % of what it may save, ms."""
        return self.saves_ms - Z_90 * self.std_ms, self.saves_ms + Z_90 * self.std_ms

    @property
    def is_sure(self) -> bool:
        """True if even the interval's lower end saves time."""
        return self.interval[0] > 0

    def measured(self, saved_ms: float) -> "WhatIf":
        return replace(self, measured_ms=saved_ms)

    def to_json(self) -> dict[str, Any]:
        return {
            "block": self.block,
            "decision": self.decision,
            "change": self.change,
            "modules": list(self.modules),
            "saves_ms": self.saves_ms,
            "interval": list(self.interval),
            "d_macs": self.d_macs,
            "saves_ms_per_mac_share": self.worth,
            "measured_ms": self.measured_ms,
        }


def model_for(target: Target, deployment: Deployment) -> LatencyModel:
    """The latency model of a target for one deployment.

    Raises:
        UserError: nothing was measured there, or not this deployment.
    """
    profile = target.profile
    if profile is None:
        raise UserError(
            f"nothing is known of the latencies of {target.name!r} with {deployment.threads} threads",
            "`nas profile local` measures this machine; --target xeon-spr takes a bundled profile",
        )
    _require_known(profile, deployment)
    return LatencyModel(profile, [deployment], prior=prior_profiles(profile))


def _require_known(profile: DeviceProfile, deployment: Deployment) -> None:
    if deployment.device not in profile.devices:
        there = "the CPU" if profile.devices == (CPU,) else " and ".join(profile.devices)
        raise UserError(
            f"profile {profile.name!r} was measured on {there}, and says nothing of {deployment.device}",
            f"`nas profile NAME --device {deployment.device}` measures it",
        )
    if deployment.batch != profile.batch:
        raise UserError(
            f"profile {profile.name!r} is of calls with {profile.batch} images, not {deployment.batch}",
            f"ask with --batch {profile.batch}",
        )
    if profile.table(deployment) is None:
        known = ", ".join(f"{t.deployment.name} with {t.deployment.threads} threads" for t in profile.tables)
        raise UserError(
            f"profile {profile.name!r} has no {deployment.name} with {deployment.threads} threads", f"it has {known}"
        )


def what_ifs(
    model: LatencyModel, space: SearchSpace, arch: Architecture, size: Size, scale: float = 1.0
) -> list[WhatIf]:
    """Every change of one decision of `arch` that keeps its input, and what the model says it saves.

    Changes whose interval is above zero come first, and among equals those that save the most per MAC removed.

    The errors of two networks that share most of their blocks are mostly the same and cancel. Those of the blocks that
    differ are taken as independent, each as large, relative to its block, as the network's own uncertainty implies if
    all of its blocks' errors are independent.

    Args:
        model: of one deployment.
        size: of the network's answer.
        scale: the network's measured latency over the predicted one, where it was measured.

    Raises:
        UserError: the model never measured a kind of block that the network has.
    """
    (deployment,) = model.deployments
    rows = neighbours(space, arch)
    if not len(rows):
        return []
    every = np.concatenate([space.choices([arch]), rows])
    prediction = model.predict(space, every, size)[deployment]
    std = _std_of_changes(prediction.mean, prediction.std, _slot_ms(model, space, every, size))
    macs = space.costs(every, size)["macs"]
    found = []
    for place, row in enumerate(rows, start=1):
        saves_ms = scale * float(prediction.mean[0] - prediction.mean[place])
        removed = float(macs[0] - macs[place]) / float(macs[0])
        column = _changed_column(space, arch, row)
        block, _, decision = space.decisions[column].name.rpartition(".")
        found.append(
            WhatIf(
                block=block or NETWORK,
                decision=decision,
                change=_words(space, arch, row, column),
                architecture=space.architecture(row),
                modules=_modules(space, arch, column),
                saves_ms=saves_ms,
                std_ms=scale * float(std[place - 1]),
                d_macs=int(macs[place] - macs[0]),
                worth=saves_ms / max(removed, LEAST_MACS),
            )
        )
    return ranked(found)


def ranked(found: Sequence[WhatIf]) -> list[WhatIf]:
    """Sure savings first, then possible ones, then what costs time; within each by what is saved per MAC removed."""
    return sorted(found, key=lambda w: (not w.is_sure, w.saves_ms <= 0, -w.worth))


def best(found: Sequence[WhatIf], count: int) -> list[WhatIf]:
    """The first `count` of a ranked list that save time and each change another decision."""
    taken: dict[tuple[str, str], WhatIf] = {}
    for what_if in found:
        if what_if.saves_ms > 0:
            taken.setdefault((what_if.block, what_if.decision), what_if)
    return list(taken.values())[:count]


def neighbours(space: SearchSpace, arch: Architecture) -> Choices:
    """Every other network (n, decisions) that differs from `arch` in one decision and takes the same input."""
    (row,) = space.choices([arch])
    found = []
    for column, allowed in enumerate(space.allowed):
        for option in allowed:
            if option != row[column]:
                changed = row.copy()
                changed[column] = option
                found.append(changed)
    if not found:
        return np.empty((0, len(row)), dtype=np.int64)
    canonical = space.canonical(np.stack(found))
    _, first = np.unique(canonical, axis=0, return_index=True)
    unique = canonical[np.sort(first)]
    _, places = space.inputs_of(np.concatenate([row[None], unique]))
    same_input = places[1:] == places[0]
    found_others: Choices = unique[same_input & (unique != row).any(axis=1)]
    return found_others


def _slot_ms(model: LatencyModel, space: SearchSpace, every: Choices, size: Size) -> NDArray[np.float64] | None:
    """Times (n, slots) of the blocks; None where slots of two networks are not comparable."""
    if space.slot_decisions is None:
        return None
    (slot_ms,) = model.slot_ms(space, every, size).values()
    return slot_ms


def _std_of_changes(
    mean: NDArray[np.float64], std: NDArray[np.float64], slot_ms: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Standard deviations (n - 1,) of the differences between the first network's latency and the others'."""
    if slot_ms is None:
        return np.asarray(np.hypot(std[0], std[1:]))
    before, after = slot_ms[0], slot_ms[1:]
    differ = ~np.isclose(before, after, rtol=1e-9)
    changed = np.sqrt(((before**2 + after**2) * differ).sum(axis=1))
    whole = math.sqrt(float((before**2).sum()))
    # A network that is unlike those that were measured is less sure, and so is the change to it.
    relative = np.maximum(std[1:] / mean[1:], std[0] / mean[0])
    return np.asarray(relative * mean[0] * changed / whole)


def _changed_column(space: SearchSpace, arch: Architecture, row: NDArray[np.int64]) -> int:
    """The decision that was changed: of several that differ, because some lost their meaning, the one implying them."""
    (before,) = space.choices([arch])
    columns = np.flatnonzero(before != row)
    for column in columns:
        alone = before.copy()
        alone[column] = row[column]
        if (space.canonical(alone[None])[0] == row).all():
            return int(column)
    return int(columns[0])


def _words(space: SearchSpace, arch: Architecture, row: NDArray[np.int64], column: int) -> str:
    decision = space.decisions[column]
    short = decision.name.rpartition(".")[2]
    return f"{short} {decision.options[arch.choices[column]]} -> {decision.options[int(row[column])]}"


def _modules(space: SearchSpace, arch: Architecture, column: int) -> tuple[str, ...]:
    """Modules of the blocks that depend on a decision; of a number of blocks all that it counts."""
    places, decisions = space.slot_places(arch), space.slot_decisions
    if places is None or decisions is None:
        return ()
    part = space.decisions[column].name.rpartition(".")[0]
    others = {c for c, d in enumerate(space.decisions) if d.name.rpartition(".")[0] == part and c != column}
    of_it = [column in needs for needs in decisions]
    if not any(of_it):
        of_it = [bool(others) and others <= set(needs) for needs in decisions]
    return tuple(module for modules, own in zip(places, of_it, strict=True) if own for module in modules)
