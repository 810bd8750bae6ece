"""Whole networks under the teacher: several of the shortlist a little, the best of them to the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import nn

from nas.baseline.price import student_price
from nas.baseline.proposing import Made
from nas.baseline.shortlist import ENOUGH, Proposal
from nas.baseline.smaller import on_its_own
from nas.baseline.steps import Steps
from nas.baseline.students import Student, asked_epochs, assemble, epoch_seconds, train_student
from nas.controller.runs.run_folder import network_name
from nas.deploy.tried import files_of
from nas.errors import LimitMissedError
from nas.files.records import write_record
from nas.networks.derived import source_key
from nas.networks.description import NETWORK, NetworkDescription, save_network
from nas.networks.run_networks import TRAINED
from nas.text import milliseconds, percent
from nas.training.folder import DivergedError

TRIED_SHARE = 0.25
"""Of the time that is left: for comparing students."""
MOST_EPOCHS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A network that was trained by the teacher."""

    network: nn.Module
    description: NetworkDescription
    proposal: Proposal
    accuracy: float
    """On the validation examples, in torch."""
    epochs: int
    folder: Path


def train_best(steps: Steps, made: Made, limit_ms: float, attempt: int) -> Trained:
    """Train networks of the shortlist that were measured within `limit_ms`, and return the best of them.

    `attempt`: number of earlier calls, whose networks were too slow when they were measured again.

    Raises:
        LimitMissedError: none was measured within the limit.
    """
    found = made.shortlist
    again = f"-{attempt}" * (attempt > 0)
    within = found.within(limit_ms)
    if not within:
        nearest = min((p.measured_ms for p in found.proposals if p.measured_ms is not None), default=float("nan"))
        raise LimitMissedError(
            f"no network made of the baseline's units kept {milliseconds(limit_ms)} ms when it was measured; the "
            f"nearest came to {milliseconds(nearest)} ms",
            "ask for a higher --latency-ms or a lower --speedup",
        )
    distinct = _different(within)
    students = [student_of(steps, made, p) for p in distinct]
    pace = [epoch_seconds(steps.room, s.network) for s in students]
    own_s, answer_s = sum(own for own, _ in pace), max(answer for _, answer in pace)
    asking = partial(asked_epochs, steps.room.recipe, steps.room.objective.train_examples)
    epochs = steps.planned(
        f"tried{again}", lambda: epochs_within(TRIED_SHARE * steps.left_s(), own_s, answer_s, asking)
    )
    doubt = 1.0
    if len(students) > 1 and epochs:
        with steps.stage("students", len(students)) as bar:
            for student in students:
                try:
                    train_student(steps.room, student, f"tried{again}", epochs)
                except DivergedError:
                    student.accuracy = -1.0
                bar.advance(1, note=percent(student.accuracy) if student.accuracy >= 0 else "diverged")
        best = max(range(len(students)), key=lambda i: students[i].accuracy)
        doubt = sum(s.seconds for s in students) / (epochs * own_s + asking(epochs) * answer_s) or 1.0
    else:
        best, epochs = 0, 0
    chosen, name = students[best], distinct[best]
    asking_still = partial(asking, before=epochs)
    further = steps.planned(
        f"final{again}",
        lambda: max(1, epochs_within(steps.left_s() / doubt, pace[best][0], answer_s, asking_still)),
    )
    with steps.stage("final_training", 1) as bar:
        train_student(steps.room, chosen, f"final{again}", further)
        bar.advance(1, note=percent(chosen.accuracy))
    whole = sum(unit.macs for unit in steps.units)
    prices = {
        "students": student_price(whole, sum(map(made.macs, distinct)), epochs, asking(epochs)),
        "final_training": student_price(whole, made.macs(name), further, asking_still(further)),
    }
    for stage, price in prices.items():
        steps.teacher_epochs[stage] = steps.teacher_epochs.get(stage, 0.0) + price
    for student, proposal in zip(students, distinct, strict=True):
        learnt = epochs + further * (student is chosen)
        if learnt and student.accuracy >= 0:
            _save(student, proposal, learnt)
    return Trained(
        network=on_its_own(chosen.network), description=chosen.description, proposal=name, accuracy=chosen.accuracy,
        epochs=epochs + further, folder=chosen.folder,
    )  # fmt: skip


def epochs_within(seconds: float, own_s: float, answer_s: float, asking: Callable[[int], int]) -> int:
    """The most epochs, up to `MOST_EPOCHS`, that take no longer: `own_s` each, and `answer_s` more where the teacher is
    asked."""
    return max(e for e in range(MOST_EPOCHS + 1) if e * own_s + asking(e) * answer_s <= seconds or not e)


def _different(within: Sequence[Proposal]) -> list[Proposal]:
    """Up to `ENOUGH` networks, the nearest to the teacher first; of each form one where there is one: before any
    training as a whole, forms cannot be told apart by their distance."""
    distinct = list({(p.form, p.options): p for p in reversed(within)}.values())[::-1]
    nearest = {p.form: p for p in reversed(distinct)}.values()
    others = [p for p in distinct if p not in nearest]
    return sorted([*nearest, *others][:ENOUGH], key=lambda p: p.loss)


def student_of(steps: Steps, made: Made, proposal: Proposal) -> Student:
    """The network of a proposal, assembled and not trained as a whole, in its folder among the run's finalists."""
    form = proposal.form
    description = steps.reference.description.derived(proposal.options, form)
    folder = steps.folder.finalists / network_name(f"derived:{source_key(description.source)}")
    network = assemble(steps.room, made.library(form.width), proposal.options, form.resolution)
    return Student(network=network, description=description, folder=folder, accuracy=proposal.accuracy)


def _save(student: Student, proposal: Proposal, epochs: int) -> None:
    """The student as a network of the run, see `nas.networks.run_networks`."""
    save_network(on_its_own(student.network), student.description, student.folder / NETWORK)
    document = {
        "network": student.description.to_json(), "accuracy": student.accuracy, "epochs": epochs,
        "proposal": proposal.to_json(),
    }  # fmt: skip
    write_record(student.folder, TRAINED, document, files_of(student.folder / NETWORK))
