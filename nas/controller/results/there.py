"""The accuracy of a delivered file on the machine that it is delivered to, where that is another one and at hand."""

from dataclasses import dataclass
from functools import partial

from nas.controller.values import Finalist
from nas.errors import UserError
from nas.measure.measurement import MeasureRequest
from nas.measure.site import Site
from nas.tasks import TaskData, task_of
from nas.text import percent

SHIPPED_BYTES = 64 * 2**20
"""Inputs that travel to a device at once."""


@dataclass(frozen=True, slots=True)
class AccuracyThere:
    """What a device elsewhere made of the validation split."""

    value: float | None = None
    """By the task's metric, a fraction; None where it was not computed there."""
    remark: str | None = None
    """For the result: why it was not computed, or that it is another one than here."""


def accuracy_there(site: Site | None, winner: Finalist, data: TaskData) -> AccuracyThere:
    """Compute the accuracy of the winner's delivered file on `site`; nothing where that is this host, or not at hand.

    Processors round int8 and bf16 differently, so that the accuracy which was computed here need not be that of the
    device.
    """
    if site is None or site.compute is None:
        return AccuracyThere()
    chosen, signature = winner.deployed.chosen, winner.deployed.description.signature
    assert chosen is not None
    assert chosen.path is not None
    split = data.for_input("val", signature.input)
    batch = max(1, min(len(split), SHIPPED_BYTES // signature.input.zeros(1).nbytes))
    run = partial(site.compute, MeasureRequest(chosen.path, chosen.deployment))
    try:
        value = task_of(data).accuracy_in_runtime(run, split, data.preprocess, signature, batch=batch)
    except UserError as error:
        return AccuracyThere(remark=f"the accuracy was not computed on {site.name}: {error}")
    if value == chosen.accuracy:
        return AccuracyThere(value)
    told = f"{chosen.name} has {percent(value)} on {site.name} and {percent(chosen.accuracy)} here"
    return AccuracyThere(value, f"of the validation examples {told}: processors round differently")
