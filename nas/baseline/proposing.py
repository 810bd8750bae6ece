"""From a baseline to a shortlist: options are measured and taught, and networks of them compared."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch

from nas.baseline.folder import checksum, read_step, write_step
from nas.baseline.library import Library, LibraryTraining, begin, replacement_losses, taught_steps, teach
from nas.baseline.price import library_price
from nas.baseline.shortlist import Question, Shortlist, fastest_ms, shortlist
from nas.baseline.steps import Steps
from nas.baseline.students import accuracy_at_a_glance, assemble, loss_against_teacher
from nas.baseline.times import UnitTimes, measure_options, worthwhile
from nas.deployment import Deployment
from nas.errors import InfeasibleError
from nas.networks.options import KEEP, options_of
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Made:
    """Everything that is known of a baseline's options and of networks of them."""

    library: Library
    losses: list[dict[str, float]]
    """For each unit, what each option loses alone."""
    shortlist: Shortlist


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
    library = _library(steps, worthwhile(tables))
    losses = _losses(steps, library)
    return Made(library=library, losses=losses, shortlist=_shortlist(steps, library, losses, tables, limit_ms))


def _times(steps: Steps, deployments: Sequence[Deployment]) -> list[UnitTimes]:
    identity = {**steps.origin, "deployments": [asdict(d) for d in deployments]}
    found = read_step(steps.folder.times, identity)
    if found is not None:
        return [UnitTimes.from_json(document) for document in found]
    everything = Library(steps.units, [list(options_of(unit)) for unit in steps.units])
    with steps.stage("options", 1 + len({o for names in everything.offered for o in names})) as bar:
        with steps.scratch("options") as place:
            tables = measure_options(
                everything, steps.input, deployments, place, steps.preparing,
                lambda name: bar.advance(1, note=name), steps.references,
            )  # fmt: skip
        bar.advance(1)
    write_step(steps.folder.times, identity, [table.to_json() for table in tables])
    return tables


def _library(steps: Steps, offered: Sequence[Sequence[str]]) -> Library:
    library, room = Library(steps.units, offered, steps.config.seed), steps.room
    library.move(room.device)
    size = min(TEACHING_BATCH, max(2, room.objective.train_examples // 2))
    batches = partial(room.batches, size, steps.config.seed)
    with steps.stage("library") as opening:
        count = steps.planned("library", lambda: _library_steps(steps, library, batches, size))
        training = LibraryTraining(count, steps.config.seed, json.dumps([steps.origin, library.offered]))
        if taught_steps(steps.folder.library, training) is None:
            begin(library, torch.cat(room.inputs[: max(1, BEGUN_ON // TEACHING_BATCH)]))
        opening.advance(0)
    with steps.stage("library", count) as bar:
        teach(library, batches, training, steps.folder.library, lambda step: bar.advance(1))
    steps.teacher_epochs["library"] = library_price(library.costs()[0], room.objective.train_examples, count * size)
    return library


def _library_steps(steps: Steps, library: Library, batches: Callable[[int], Iterator[torch.Tensor]], size: int) -> int:
    """Steps that fit into the library's share of the time."""
    trial = Library(steps.units, [names[1:] for names in library.offered])
    trial.move(library.device)
    step_s = fastest_call(lambda: teach(trial, batches, LibraryTraining(2)), library.device, 1) / 2
    most = MOST_EPOCHS * max(1, steps.room.objective.train_examples // size)
    return max(LEAST_STEPS, min(most, int(LIBRARY_SHARE * steps.left_s() / step_s)))


def _losses(steps: Steps, library: Library) -> list[dict[str, float]]:
    identity = {**steps.origin, "offered": library.offered, "library": checksum(steps.folder.library)}
    found = read_step(steps.folder.losses, identity)
    if found is None:
        count = steps.planned("losses", lambda: _compared(steps, library))
        inputs = steps.room.inputs[:count]
        with steps.stage("losses", len(inputs)) as bar:
            found = replacement_losses(library, inputs, steps.room.distance, lambda done: bar.advance(1))
        write_step(steps.folder.losses, identity, found)
    return [dict(named) for named in found]


def _compared(steps: Steps, library: Library) -> int:
    """Batches of inputs on which every option can be compared within its share of the time."""
    whole = steps.room.inputs[0]
    # A GPU takes as long for a few examples as for a whole batch.
    few = whole[:GLANCE] if library.device.type == "cpu" else whole
    began = time.monotonic()
    replacement_losses(library, [few], steps.room.distance)
    batch_s = (time.monotonic() - began) * len(whole) / len(few)
    return max(1, min(len(steps.room.inputs), int(LOSSES_SHARE * steps.left_s() / batch_s)))


def _shortlist(
    steps: Steps, library: Library, losses: list[dict[str, float]], tables: Sequence[UnitTimes], limit_ms: float
) -> Shortlist:
    identity = {
        "losses": checksum(steps.folder.losses), "times": checksum(steps.folder.times), "limit_ms": limit_ms
    }  # fmt: skip
    found = read_step(steps.folder.shortlist, identity)
    if found is not None:
        return Shortlist.from_json(found)
    with steps.stage("shortlist") as bar, steps.scratch("shortlist") as place:
        question = Question(
            room=steps.room, library=library, losses=losses, limit_ms=limit_ms,
            most=steps.planned("assembled", lambda: _networks(steps, library)),
            references=steps.references, folder=place, prepare=steps.preparing,
            on_assembled=lambda: bar.advance(1),
        )  # fmt: skip
        made = shortlist(question, tables)
    write_step(steps.folder.shortlist, identity, made.to_json())
    return made


def _networks(steps: Steps, library: Library) -> int:
    """Networks whose comparison with the teacher fits into the shortlist's share of the time."""
    began = time.monotonic()
    network = assemble(steps.room, library, [KEEP] * len(library.units))
    loss_against_teacher(steps.room, network)
    accuracy_at_a_glance(steps.room, network)
    # The baseline takes longer than any network that is made of it.
    return max(FEWEST, min(MOST, int(SHORTLIST_SHARE * steps.left_s() / (time.monotonic() - began))))
