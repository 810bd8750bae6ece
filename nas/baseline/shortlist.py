"""Networks that the table of times and the scores propose, assembled, measured, and compared with the teacher."""

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from nas.baseline.as_int8 import AsDeployed, as_deployed
from nas.baseline.library import Library, library_of
from nas.baseline.scores import refitted
from nas.baseline.selection import exact_choice, exact_choices, fastest_of, greedy_choice, total, uniform_choices
from nas.baseline.students import Classroom, assemble, compared, loss_against_teacher
from nas.baseline.times import References, UnitTimes, time_networks
from nas.deployment import Deployment
from nas.networks.derived import OWN_FORM, Form
from nas.networks.options import KEEP

FORMS = 4
"""Forms of networks (widths and sizes of images) that are looked at closely: those nearest to the teacher at first
sight."""
EXACT, RULES = 8, 6
"""Choices by the table, and by plain rules, that are assembled for each deployment."""
MEASURED = 4
"""Networks measured in each round."""
ROUNDS = 3
"""Times that the tables are asked, each time corrected by the losses and times of the networks before."""
SESSIONS = 2
"""Fresh sessions of each network that is measured: one may be disturbed from its beginning to its end."""
ENOUGH = 3
"""Networks within the limit that are worth a training each; as many are measured once there is one."""
WORSE = 1.2
"""A network that loses so many times as much as one within the limit is not measured."""
MARGIN = 0.08
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
    """Distance of the assembled network from the teacher on training examples, as the deployment rounds."""
    accuracy: float
    """Of the assembled network, rounded likewise, on some validation examples, in torch, a fraction."""
    form: Form = OWN_FORM
    measured_ms: float | None = None
    """In that deployment; None where it was not measured."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "form": self.form.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Proposal":
        form, options = Form.from_json(document["form"]), tuple(document["options"])
        return cls(**{**document, "options": options, "form": form})


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """What a shortlist is made for."""

    room: Classroom
    libraries: Sequence[Library]
    """Taught, one for each width."""
    losses: Mapping[tuple[float, AsDeployed | None], Losses]
    """By width and by how deployments compute (`nas.baseline.as_int8.as_deployed`), for each unit what each option
    loses."""
    limit_ms: float
    """Of a call."""
    most: int
    """Networks of each form to assemble: the more, the better the corrected losses."""
    references: References
    """See `nas.baseline.times.measure_options`."""
    folder: Path
    """For files, which are removed again."""
    prepare: Callable[[Path, Form], object] = lambda folder, form: None
    """Adds to the folder of a network of a form what else is needed to time it."""
    on_assembled: Callable[[], None] = lambda: None
    """Called after each network."""


def shortlist(question: Question, tables: Sequence[UnitTimes]) -> Shortlist:
    """Networks of the library that keep the limit when they are measured, and those that were tried on the way.

    Additive scores and times only propose (Bercovich et al. 2024 find that ranks change once whole networks learn), so
    that choices by plain rules are tried too, and the assembled network's own distance from the teacher decides which
    are measured. What they lose and take corrects losses and times, which are then asked again.

    Args:
        question: what is to be found.
        tables: times of each form in the deployments that are considered.
    """
    kinds: dict[tuple[Form, AsDeployed | None], list[UnitTimes]] = {}
    for table in tables:
        kinds.setdefault((table.form, as_deployed(table.deployment)), []).append(table)
    everything = [_Work(question, form, computes, found) for (form, computes), found in kinds.items()]
    if len(everything) > FORMS:
        for work in everything:
            work.glance()
    found = sorted(everything, key=lambda work: (work.nearest, fastest_ms(work.tables)[1]))[:FORMS]
    for work in found:
        for number in range(1, ROUNDS + 1):
            while work.propose() and len(work.known) < question.most * number / ROUNDS:
                pass
            for at in range(len(work.tables)):
                work.measure(at)
    return Shortlist(
        proposals=tuple(proposal for work in everything for proposal in work.proposals.values()),
        tables=tuple(table for work in everything for table in work.tables),
    )


class _Work:
    """What is known so far of networks of one form, for deployments that compute alike."""

    def __init__(
        self, question: Question, form: Form, computes: AsDeployed | None, tables: list[UnitTimes]
    ) -> None:  # fmt: skip
        self.question, self.form, self.computes, self.tables = question, form, computes, tables
        self.library = library_of(question.libraries, form.width)
        self.proposals: dict[tuple[str, tuple[str, ...]], Proposal] = {}
        """By the name of their deployment and their options."""
        self.known: dict[tuple[str, ...], tuple[float, float]] = {}
        """Loss and accuracy of each network that was assembled."""
        self.broken: set[tuple[str, ...]] = set()
        """Networks whose answers are no numbers."""

    @cached_property
    def losses(self) -> Losses:
        """For each unit what each option loses: with smaller images as with the baseline's, and what these cost on top,
        the same share for each unit."""
        found, resolution = self.question.losses[self.form.width, self.computes], self.form.resolution
        if resolution is None:
            return found
        whole = [KEEP] * len(found)
        small, large = (
            loss_against_teacher(self.question.room, assemble(self.question.room, self.library, whole, side))
            for side in (resolution, None)
        )
        more = max(0.0, small - large) / len(found)
        return [{name: more + loss for name, loss in named.items()} for named in found]

    @property
    def nearest(self) -> float:
        """Distance from the teacher of the nearest network so far; inf without any."""
        return min((proposal.loss for proposal in self.proposals.values()), default=inf)

    def glance(self) -> None:
        """Assemble the best choice by each table."""
        for table in self.tables:
            options = exact_choice(self.losses, table.call_ms, self.question.limit_ms * (1 - MARGIN))
            if options is not None:
                self._add(options, "exact", table, self.losses)

    def propose(self) -> bool:
        """Ask every table once, by the losses as they are corrected by now; whether anything new was proposed."""
        scores = refitted(self.losses, [(options, loss) for options, (loss, _) in self.known.items()])
        before = len(self.proposals)
        for table in self.tables:
            for options, origin in _choices(scores, table, self.question.limit_ms * (1 - MARGIN)):
                if len(self.known) < self.question.most or options in self.known:
                    self._add(options, origin, table, scores)
        return len(self.proposals) > before

    def _add(self, options: tuple[str, ...], origin: str, table: UnitTimes, scores: Losses) -> None:
        """Propose a network for the deployment of a table, unless that was done or its answers are no numbers."""
        name = table.deployment.name
        if (name, options) in self.proposals or options in self.broken:
            return
        loss, accuracy = self._loss_and_accuracy(options)
        if not math.isfinite(loss):
            self.broken.add(options)
            return
        self.proposals[name, options] = Proposal(
            options=options, origin=origin, deployment=name, score=total(scores, options),
            predicted_ms=table.predicted_ms(options), loss=loss, accuracy=accuracy, form=self.form,
        )  # fmt: skip

    def measure(self, at: int) -> None:
        """Measure the networks nearest to the teacher that a table expects to be within the limit, and correct it.

        Not those that lose clearly more than one that was measured within.
        """
        q, table = self.question, self.tables[at]
        name = table.deployment.name
        mine = [p for p in self.proposals.values() if p.deployment == name]
        within = [p.loss for p in mine if p.measured_ms is not None and p.measured_ms <= q.limit_ms]
        expected = {p.options: table.predicted_ms(p.options) for p in mine if p.measured_ms is None}
        most_ms = max(q.limit_ms, min(expected.values(), default=0.0))
        fresh = [p for p in mine if expected.get(p.options, inf) <= most_ms]
        best = sorted(fresh, key=lambda p: p.loss)[: ENOUGH if within else MEASURED]
        if not best or best[0].loss > WORSE * min(within, default=inf):
            return
        networks = [(p.options, self.library.network(p.options).eval().cpu()) for p in best]
        input = self.form.input(q.room.teacher.description.signature.input)
        place = q.folder / f"{name}-{self.form.key or 'own'}"
        timed = time_networks(
            networks, input, [table.deployment], place, lambda folder: q.prepare(folder, self.form),
            SESSIONS, q.references,
        )[table.deployment]  # fmt: skip
        shutil.rmtree(place, ignore_errors=True)
        for t in timed:
            self.proposals[name, t.options] = replace(self.proposals[name, t.options], measured_ms=t.p50_ms)
        self.tables[at] = table.with_mixed(timed)

    def _loss_and_accuracy(self, options: tuple[str, ...]) -> tuple[float, float]:
        if options not in self.known:
            network = assemble(self.question.room, self.library, options, self.form.resolution)
            loss, accuracy = compared(self.question.room, network, self.computes)
            if not math.isfinite(loss):
                return loss, 0.0
            self.known[options] = loss, accuracy
            self.question.on_assembled()
        return self.known[options]


def _choices(scores: Losses, table: UnitTimes, limit_ms: float) -> Iterable[tuple[tuple[str, ...], str]]:
    """Choices under the limit by the table, and how each was found; the same one may come several times."""
    costs = table.call_ms
    # At the edge of what is possible there may be no other.
    yield fastest_of(scores, costs), "fastest"
    for options in exact_choices(scores, costs, limit_ms, EXACT):
        yield options, "exact"
    greedy = greedy_choice(scores, costs, limit_ms)
    if greedy is not None:
        yield greedy, "greedy"
    plain = {c.options: c for c in uniform_choices(scores, costs, limit_ms)}
    for choice in sorted(plain.values(), key=lambda c: total(scores, c.options))[:RULES]:
        yield choice.options, choice.origin


def fastest_ms(tables: Sequence[UnitTimes]) -> tuple[Deployment, float]:
    """The deployment and the milliseconds of the fastest network there is, as the tables expect."""
    floors = {t.deployment: t.predicted_ms(t.fastest) for t in tables}
    best = min(floors, key=lambda d: floors[d])
    return best, floors[best]
