"""Why a search delivers nothing: what is not worth it, what missed its limits, and what helps."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from nas.controller.prediction.feasibility import two_digits
from nas.controller.values import Finalist
from nas.errors import LimitMissedError, NotWorthItError
from nas.limits import AccuracyLimit, Limits, Violation
from nas.tasks import TaskData, task_of
from nas.tasks.floor import Floor, missed_floor
from nas.text import duration, percent


def is_worth_it(finalist: Finalist, floors: Sequence[Floor], data: TaskData) -> bool:
    """True if the deployed file is better than what can be had without a network, see `nas.tasks.floor`."""
    return beats(finalist.deployed_accuracy, floors, data)


def beats(accuracy: float, floors: Sequence[Floor], data: TaskData) -> bool:
    """True if a network of this validation accuracy is worth more than every floor; without one (-1) it is not."""
    return accuracy >= 0 and missed_floor(accuracy, floors, task_of(data).standard_error(accuracy, data.val)) is None


def not_worth_it(finalists: Sequence[Finalist], floors: Sequence[Floor], data: TaskData) -> NotWorthItError:
    """The error of a search whose finalists keep the limits and miss a floor: which one, and what helps."""
    task = task_of(data)
    best = max((f for f in finalists if f.within_limit), key=lambda f: f.deployed_accuracy)
    accuracy = best.deployed_accuracy
    floor = missed_floor(accuracy, floors, task.standard_error(accuracy, data.val))
    assert floor is not None
    epochs = best.trained.epochs
    training = f"after {epochs} epoch{'s' * (epochs > 1)}" if epochs else "after its short training"
    return NotWorthItError(
        f"the best network that keeps the limits reached {percent(accuracy)} {task.metric_of(data)} on the validation "
        f"split, {training}: {floor.name} reaches {percent(floor.accuracy)} in {duration(floor.seconds)}",
        "give a longer --budget: networks are trained from scratch; or a looser limit",
    )


def limits_missed(
    finalists: Sequence[Finalist], limits: Limits, run: Path, untrained: Sequence[Violation] = ()
) -> LimitMissedError:
    """The error to raise where no finalist kept the limits; it says how near they came to each.

    Where a single limit was in the way the hint is the command that delivers the nearest one from the folder `run`:
    it is trained already. `untrained`: what networks were measured to miss before their training, of interest where
    that left no finalist.
    """
    misses = [violation for finalist in finalists for violation in finalist.violations]
    when = "when its exported file was measured"
    if not finalists:
        misses = list(untrained)
        when = "when it was measured before its training" if untrained else "by what was predicted for it"
    nearest = {}
    for limit in limits:
        values = [v.value for v in misses if v.name == limit.name]
        if values:
            nearest[limit.name] = min(values) if limit.at_most else max(values)
    came = f"; the nearest came to {' and '.join(limits[n].quantity(float(f'{v:.3g}')) for n, v in nearest.items())}"
    options = ", or ".join(
        f"a {'higher' if limits[n].at_most else 'lower'} {limits[n].option}" for n in nearest or limits.given
    )
    finer = "" if set(nearest) == {AccuracyLimit.name} else ", or make a finer profile with `nas profile`"
    doubt = next((f.deployed.doubt for f in finalists if f.deployed.doubt is not None), None)
    if doubt is not None:
        return LimitMissedError(
            f"no candidate kept {limits.asked} {when}{came if nearest else ''}; the machine was busy then ({doubt})",
            f"run the same command again while nothing else runs: it measures these files again; or ask for {options}",
        )
    nearer = ""
    if finalists and len(nearest) == 1 and limits[name := next(iter(nearest))].at_most:
        again = f"nas search --run {shlex.quote(str(run))} {limits[name].option} {two_digits(nearest[name], up=True):g}"
        nearer = f"run `{again}` to have that one; or "
    return LimitMissedError(
        f"no candidate kept {limits.asked} {when}{came if nearest else ''}",
        f"{nearer}ask for {options}{',' if finer else ' or'} give a longer --budget{finer}",
    )
