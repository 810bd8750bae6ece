"""From a baseline to a shortlist: options are measured and taught, and networks of them compared."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import torch

from nas.baseline.as_int8 import AsDeployed, as_deployed
from nas.baseline.folder import checksum, read_step, write_step
from nas.baseline.library import (
    Library,
    LibraryTraining,
    begin,
    library_of,
    replacement_losses,
    taught_steps,
    teach,
)
from nas.baseline.price import library_price
from nas.baseline.shortlist import FORMS, Proposal, Question, Shortlist, fastest_ms, shortlist
from nas.baseline.steps import Steps
from nas.baseline.students import assemble, compared
from nas.baseline.times import UnitTimes, measure_options, most_different, worthwhile
from nas.deployment import Deployment
from nas.errors import InfeasibleError, UserError
from nas.networks.derived import Form
from nas.networks.options import KEEP, options_of
from nas.networks.units import Unit
from nas.text import milliseconds
from nas.training.setup import fastest_call

LIBRARY_SHARE, LOSSES_SHARE, SHORTLIST_SHARE = 0.25, 0.1, 0.1
"""Of the time that is left when they begin."""
FEWEST, MOST = 12, 100
"""Networks that are assembled for a shortlist."""
EDGE = 1.1
"""Predicted so many times over the limit, the fastest network is refused without being made."""
BEGUN_ON = 256
"""Training examples that the library's closed-form start is computed on."""
TEACHING_BATCH = 64
"""Examples in a step of the library."""
GLANCE = 8
"""Examples on which the time of comparing options is estimated."""
LEAST_STEPS, MOST_EPOCHS = 30, 4
"""Of the library: fewer steps teach nothing, and in more passes there is nothing more to learn."""


WIDTHS = (0.75, 0.5)
"""Shares of the channels that narrower networks have; what a residual stage shares can only be narrower everywhere."""


AllLosses = Mapping[tuple[float, AsDeployed | None], list[dict[str, float]]]
"""By width and by how deployments compute, for each unit what each option loses alone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Made:
    """Everything that is known of a baseline's options and of networks of them."""

    libraries: tuple[Library, ...]
    """One for each width, the baseline's own first."""
    losses: AllLosses
    forms: tuple[Form, ...]
    """That networks may have, those with the baseline's images first."""
    shortlist: Shortlist

    def library(self, width: float) -> Library:
        """That of a width."""
        return library_of(self.libraries, width)

    def lost(self, width: float, deployment: Deployment) -> list[dict[str, float]]:
        """For each unit of a width what each option loses alone, as the deployment computes where that was asked."""
        known = self.losses.get((width, as_deployed(deployment)))
        return known or next(losses for (of, _), losses in self.losses.items() if of == width)

    def macs(self, proposal: Proposal) -> int:
        """Multiply-accumulates of a network."""
        macs, _ = self.library(proposal.form.width).costs(proposal.form.resolution)
        return sum(named[option] for named, option in zip(macs, proposal.options, strict=True))


def propose(steps: Steps, deployments: Sequence[Deployment], limit_ms: float) -> Made:
    """Measure the options, teach those that are worth it, and shortlist networks of them.

    Args:
        steps: of the run.
        deployments: that networks are made for.
        limit_ms: of a call.

    Raises:
        InfeasibleError: not even the fastest options keep the limit.
    """
    tables = _times(steps, deployments)
    deployment, floor_ms = fastest_ms(tables)
    if floor_ms > EDGE * limit_ms:
        raise InfeasibleError(
            f"no network made of the units of {steps.reference.text} keeps {milliseconds(limit_ms)} ms: the fastest "
            f"one takes about {milliseconds(floor_ms)} ms ({deployment.name})",
            f"ask for {milliseconds(1.2 * floor_ms)} ms or more, or search from scratch: leave out --baseline",
        )
    libraries = _taught(steps, tables)
    losses = _losses(steps, libraries, tables)
    forms = tuple(dict.fromkeys(table.form for table in tables))
    found = _shortlist(steps, libraries, losses, tables, limit_ms)
    return Made(libraries=libraries, losses=losses, forms=forms, shortlist=found)


def _libraries(
    steps: Steps, offered: Callable[[float, Sequence[Unit]], Sequence[Sequence[str]]], seed: int = 0
) -> tuple[Library, ...]:
    """New ones of every width that the baseline can have; `offered` says of a width's units what may replace them."""
    found = [Library(steps.units, offered(1.0, steps.units), seed)]
    for width in WIDTHS:
        narrow = steps.narrowed(width)
        if narrow is not None:
            found.append(Library(narrow.units, offered(width, narrow.units), seed, width, narrow.kept))
    return tuple(found)


def _times(steps: Steps, deployments: Sequence[Deployment]) -> list[UnitTimes]:
    identity = {
        **steps.origin, "deployments": [asdict(d) for d in deployments], "widths": WIDTHS,
        "resolutions": steps.resolutions,
    }  # fmt: skip
    found = read_step(steps.folder.times, identity)
    if found is not None:
        return [UnitTimes.from_json(document) for document in found]
    everything = _libraries(steps, lambda width, units: [list(options_of(unit)) for unit in units])
    networks = sum(len({o for names in library.offered for o in names}) for library in everything)
    networks += 2 * len(everything) * len(steps.resolutions)
    tables: list[UnitTimes] = []
    with steps.stage("options", 1 + networks) as bar:
        for library in everything:
            with steps.scratch("options") as place:
                tables += measure_options(
                    library, steps.input, deployments, place, steps.preparing,
                    lambda name: bar.advance(1, note=name), steps.references,
                )  # fmt: skip
        for resolution, library in product(steps.resolutions, everything):
            form = Form(library.width, resolution)
            whole = {table.deployment: table for table in tables if table.form == Form(library.width)}
            with steps.scratch("options") as place:
                try:
                    small = measure_options(
                        library, form.input(steps.input), list(whole), place, partial(steps.preparing, form=form),
                        lambda name: bar.advance(1, note=name), steps.references, form,
                        (KEEP, most_different(whole.values())),
                    )  # fmt: skip
                except UserError as error:
                    steps.notes.append(f"networks take no images of {resolution} px: {error}")
                    continue
            tables += [table.completed(whole[table.deployment]) for table in small]
        bar.advance(1)
    write_step(steps.folder.times, identity, [table.to_json() for table in tables])
    return tables


def _taught(steps: Steps, tables: Sequence[UnitTimes]) -> tuple[Library, ...]:
    room = steps.room
    libraries = _offered(steps, tables)
    for library in libraries:
        library.move(room.device)
    size = min(TEACHING_BATCH, max(2, room.objective.train_examples // 2))
    batches = partial(room.batches, size, steps.config.seed)
    with steps.stage("library") as opening:
        count = steps.planned("library", lambda: _library_steps(steps, tables, batches, size))
        offered = [library.offered for library in libraries]
        training = LibraryTraining(count, steps.config.seed, json.dumps([steps.origin, offered]))
        if taught_steps(steps.folder.library, training) is None:
            begin(libraries, torch.cat(room.inputs[: max(1, BEGUN_ON // TEACHING_BATCH)]))
        opening.advance(0)
    with steps.stage("library", count) as bar:
        teach(libraries, batches, training, steps.folder.library, lambda step: bar.advance(1))
    own, *narrower = (library.costs()[0] for library in libraries)
    steps.teacher_epochs["library"] = library_price(own, narrower, room.objective.train_examples, count * size)
    return libraries


def _offered(steps: Steps, tables: Sequence[UnitTimes]) -> tuple[Library, ...]:
    """Libraries of the options that are worth their price in a deployment that was measured at their width."""
    return _libraries(
        steps, lambda width, units: worthwhile([t for t in tables if t.form == Form(width)]), steps.config.seed
    )


def _library_steps(
    steps: Steps, tables: Sequence[UnitTimes], batches: Callable[[int], Iterator[torch.Tensor]], size: int
) -> int:
    """Steps that fit into the library's share of the time."""
    trial = _offered(steps, tables)
    for library in trial:
        library.move(steps.room.device)
    step_s = fastest_call(lambda: teach(trial, batches, LibraryTraining(2)), steps.room.device, 1) / 2
    most = MOST_EPOCHS * max(1, steps.room.objective.train_examples // size)
    return max(LEAST_STEPS, min(most, int(LIBRARY_SHARE * steps.left_s() / step_s)))


def _losses(steps: Steps, libraries: Sequence[Library], tables: Sequence[UnitTimes]) -> AllLosses:
    kinds = tuple(dict.fromkeys(as_deployed(table.deployment) for table in tables))
    identity = {
        **steps.origin, "offered": [library.offered for library in libraries],
        "library": checksum(steps.folder.library), "rounded": [computes is not None for computes in kinds],
    }  # fmt: skip
    found = read_step(steps.folder.losses, identity)
    cases = list(product(libraries, kinds))
    if found is None:
        count = steps.planned("losses", lambda: _compared(steps, cases))
        inputs, answers = steps.room.inputs[:count], steps.room.answers[:count]
        with steps.stage("losses", len(inputs) * len(cases)) as bar:
            found = [
                _lost(steps, library, inputs, answers, computes, lambda done: bar.advance(1))
                for library, computes in cases
            ]
        write_step(steps.folder.losses, identity, found)
    return {
        (library.width, computes): [dict(named) for named in losses]
        for (library, computes), losses in zip(cases, found, strict=True)
    }


def _lost(
    steps: Steps, library: Library, inputs: Sequence[torch.Tensor], answers: Sequence[torch.Tensor],
    computes: AsDeployed | None, on_batch: Callable[[int], None] = lambda done: None,
) -> list[dict[str, float]]:  # fmt: skip
    own = None if library.width == 1 else answers
    return replacement_losses(library, inputs, steps.room.distance, on_batch, own, computes)


def _compared(steps: Steps, cases: Sequence[tuple[Library, AsDeployed | None]]) -> int:
    """Batches of inputs on which every option can be compared within its share of the time."""
    whole, answers = steps.room.inputs[0], steps.room.answers[0]
    # A GPU takes as long for a few examples as for a whole batch.
    few = GLANCE if whole.device.type == "cpu" else len(whole)
    began = time.monotonic()
    for library, computes in cases:
        _lost(steps, library, [whole[:few]], [answers[:few]], computes)
    batch_s = (time.monotonic() - began) * len(whole) / min(few, len(whole))
    return max(1, min(len(steps.room.inputs), int(LOSSES_SHARE * steps.left_s() / batch_s)))


def _shortlist(
    steps: Steps, libraries: Sequence[Library], losses: AllLosses, tables: Sequence[UnitTimes], limit_ms: float
) -> Shortlist:
    identity = {
        "losses": checksum(steps.folder.losses), "times": checksum(steps.folder.times), "limit_ms": limit_ms
    }  # fmt: skip
    found = read_step(steps.folder.shortlist, identity)
    if found is not None:
        return Shortlist.from_json(found)
    with steps.stage("shortlist") as bar, steps.scratch("shortlist") as place:
        question = Question(
            room=steps.room, libraries=tuple(libraries), losses=losses, limit_ms=limit_ms,
            most=steps.planned("assembled", lambda: _networks(steps, libraries, tables)),
            references=steps.references, folder=place, prepare=steps.preparing,
            on_assembled=lambda: bar.advance(1),
        )  # fmt: skip
        made = shortlist(question, tables)
    write_step(steps.folder.shortlist, identity, made.to_json())
    return made


def _networks(steps: Steps, libraries: Sequence[Library], tables: Sequence[UnitTimes]) -> int:
    """Networks of each form whose comparison with the teacher fits into the shortlist's share of the time."""
    own, began = libraries[0], time.monotonic()
    kinds = {(table.form, as_deployed(table.deployment)) for table in tables}
    slowest = next((computes for _, computes in kinds if computes is not None), None)
    compared(steps.room, assemble(steps.room, own, [KEEP] * len(own.units)), slowest)
    # The baseline takes longer than any network that is made of it.
    each_s = (time.monotonic() - began) * min(len(kinds), FORMS)
    return max(FEWEST, min(MOST, int(SHORTLIST_SHARE * steps.left_s() / each_s)))
