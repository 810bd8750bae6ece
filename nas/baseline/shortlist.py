"""Networks that the table of times and the scores propose, assembled, measured, and compared with the teacher."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from nas.baseline.library import Library
from nas.baseline.scores import refitted
from nas.baseline.selection import exact_choices, greedy_choice, total, uniform_choices
from nas.baseline.students import Classroom, accuracy_at_a_glance, assemble, loss_against_teacher
from nas.baseline.times import UnitTimes, time_networks
from nas.deployment import Deployment

EXACT, RULES = 8, 6
"""Choices by the table, and by plain rules, that are assembled for each deployment."""
MEASURED = 4
"""Networks measured in each round."""
ROUNDS = 3
"""Times that the tables are asked, each time corrected by the losses and times of the networks before."""
ENOUGH = 3
"""Networks within the limit that are worth a training each; as many are measured once there is one."""
WORSE = 1.2
"""A network that loses so many times as much as one within the limit is not measured."""
MARGIN = 0.05
"""Share of the limit that networks are expected to leave free: sessions differ by as much."""

Losses = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A network made of options, and what is known of it before any training as a whole."""

    options: tuple[str, ...]
    origin: str
    """How it was found."""
    deployment: str
    """Name of the deployment it was found for."""
    score: float
    """Sum of what its options lose one by one."""
    predicted_ms: float
    loss: float
    """Distance of the assembled network from the teacher on training examples."""
    accuracy: float
    """Of the assembled network on some validation examples, in torch, a fraction."""
    measured_ms: float | None = None
    """In that deployment; None where it was not measured."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Proposal":
        return cls(**{**document, "options": tuple(document["options"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlist:
    """All that were assembled, and the tables of times, corrected by those that were measured."""

    proposals: tuple[Proposal, ...]
    tables: tuple[UnitTimes, ...]

    def within(self, limit_ms: float) -> list[Proposal]:
        """Those measured within the limit, with half of `MARGIN` to spare where there are such, the nearest to the
        teacher first."""
        known = [(p.measured_ms, p) for p in self.proposals if p.measured_ms is not None]
        safe = [p for ms, p in known if ms <= limit_ms * (1 - MARGIN / 2)]
        return sorted(safe or [p for ms, p in known if ms <= limit_ms], key=lambda p: p.loss)

    def to_json(self) -> dict[str, Any]:
        return {"proposals": [p.to_json() for p in self.proposals], "tables": [t.to_json() for t in self.tables]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Shortlist":
        return cls(
            proposals=tuple(map(Proposal.from_json, document["proposals"])),
            tables=tuple(map(UnitTimes.from_json, document["tables"])),
        )


def shortlist(
    room: Classroom,
    library: Library,
    losses: Losses,
    tables: Sequence[UnitTimes],
    limit_ms: float,
    folder: Path,
    prepare: Callable[[Path], object] = lambda folder: None,
    on_assembled: Callable[[], None] = lambda: None,
) -> Shortlist:
    """Networks of the library that keep the limit when they are measured, and those that were tried on the way.

    Additive scores and times only propose (Bercovich et al. 2024 find that ranks change once whole networks learn), so
    that choices by plain rules are tried too, and the assembled network's own distance from the teacher decides which
    are measured. What they lose and take corrects losses and times, which are then asked again.

    Args:
        room: the teacher's.
        library: taught.
        losses: for each unit, what each option loses.
        tables: times in the deployments that are considered.
        limit_ms: of a call.
        folder: for files; it is removed again.
        prepare: adds to a network's folder what else is needed to time it.
        on_assembled: called after each network.
    """
    proposals: dict[tuple[str, tuple[str, ...]], Proposal] = {}
    known: dict[tuple[str, ...], tuple[float, float]] = {}
    tables = list(tables)
    input = room.teacher.description.signature.input
    for number in range(ROUNDS):
        scores = refitted(losses, [(options, loss) for options, (loss, _) in known.items()])
        for table in tables:
            for options, origin in _choices(scores, table, limit_ms * (1 - MARGIN)):
                if (table.deployment.name, options) in proposals:
                    continue
                if options not in known:
                    network = assemble(room, library, options)
                    known[options] = loss_against_teacher(room, network), accuracy_at_a_glance(room, network)
                    on_assembled()
                loss, accuracy = known[options]
                proposals[table.deployment.name, options] = Proposal(
                    options=options,
                    origin=origin,
                    deployment=table.deployment.name,
                    score=total(scores, options),
                    predicted_ms=table.predicted_ms(options),
                    loss=loss,
                    accuracy=accuracy,
                )
        for at, table in enumerate(tables):
            mine = [p for p in proposals.values() if p.deployment == table.deployment.name]
            # What a corrected table expects beyond the limit is not measured, nor what is no better than one within.
            reached = min(
                (p.loss for p in mine if p.measured_ms is not None and p.measured_ms <= limit_ms), default=inf
            )
            fresh = [p for p in mine if p.measured_ms is None and table.predicted_ms(p.options) <= limit_ms]
            best = sorted(fresh, key=lambda p: p.loss)[: MEASURED if reached == inf else ENOUGH]
            if not best or best[0].loss > WORSE * reached:
                continue
            networks = [(p.options, library.network(p.options).eval()) for p in best]
            place = folder / f"{number}-{at}"
            timed = time_networks(networks, input, [table.deployment], place, prepare)[table.deployment]
            shutil.rmtree(place, ignore_errors=True)
            for t in timed:
                key = table.deployment.name, t.options
                proposals[key] = replace(proposals[key], measured_ms=t.p50_ms)
            tables[at] = table.with_mixed(timed)
    return Shortlist(proposals=tuple(proposals.values()), tables=tuple(tables))


def _choices(scores: Losses, table: UnitTimes, limit_ms: float) -> Iterable[tuple[tuple[str, ...], str]]:
    """Choices under the limit by the table, and how each was found; the same one may come several times."""
    sum_ms = table.sum_for(limit_ms)
    for options in exact_choices(scores, table.unit_ms, sum_ms, EXACT):
        yield options, "exact"
    greedy = greedy_choice(scores, table.unit_ms, sum_ms)
    if greedy is not None:
        yield greedy, "greedy"
    plain = {c.options: c for c in uniform_choices(scores, table.unit_ms, sum_ms)}
    for choice in sorted(plain.values(), key=lambda c: total(scores, c.options))[:RULES]:
        yield choice.options, choice.origin


def fastest_ms(tables: Sequence[UnitTimes]) -> tuple[Deployment, float]:
    """The deployment and the milliseconds of the fastest network there is, as the tables expect."""
    floors = {t.deployment: t.predicted_ms(t.fastest) for t in tables}
    best = min(floors, key=lambda d: floors[d])
    return best, floors[best]
