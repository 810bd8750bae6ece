"""The interface of all executors, and the choice of one."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from nas.errors import UserError
from nas.executors.base import Evaluation, Finished
from nas.executors.journal import Journal
from nas.tasks import TaskData


class Executor(Protocol):
    """Runs evaluations somewhere, several at once. A context manager: its processes end with the block."""

    @property
    def journal(self) -> Journal:
        """Outcomes it has seen; whoever has recorded one for good makes the journal forget it."""
        ...

    @property
    def capacity(self) -> int:
        """Evaluations that can run at once; more should not be submitted."""
        ...

    def submit(self, task: Evaluation) -> None:
        """Start an evaluation."""
        ...

    def wait(self) -> list[Finished]:
        """Block until at least one submitted evaluation has come to its end; empty where none is under way."""
        ...

    def abandon(self) -> None:
        """End what is under way; `wait` will not tell of it."""
        ...

    def rest(self) -> None:
        """End what takes memory of this machine and has nothing to do; the next evaluation starts it again."""
        ...

    def quiet(self) -> AbstractContextManager[None]:
        """While the block lasts, no evaluation takes time from this machine's cores: for measuring on it."""
        ...


HANG_SHARE = 0.25
"""Share of a search's time after which an evaluation is taken to hang. It should take a few percent."""
HANG_S = (60.0, 3600.0)
"""Least and greatest number of seconds after which an evaluation is taken to hang, whatever `HANG_SHARE` gives."""
LONG_HANG_SHARE = 0.1
"""Share of a search's time that an evaluation may take in any case, however long that is: in a search of days one that
is planned, of up to 4 percent, takes more than an hour."""
OPEN_END_HANG_S = 900.0
"""Seconds after which an evaluation is taken to hang where trials alone end the search: trainings are planned for
seconds, and a slow one is no hang."""


def check_choice(ray: str | None, *, asha: bool) -> None:
    """Raises `UserError` for options of `executor_for` that do not go together."""
    if asha and ray is None:
        raise UserError("trainings are stopped early by Ray Tune, which needs a cluster", "give --ray too")


def hangs_after_s(budget_s: float) -> float:
    """Seconds after which an evaluation of a search with this budget (inf: as many trials as were asked for) is taken
    to hang."""
    if not math.isfinite(budget_s):
        return OPEN_END_HANG_S
    least_s, most_s = HANG_S
    return min(max(HANG_SHARE * budget_s, least_s), max(most_s, LONG_HANG_SHARE * budget_s))


@contextmanager
def executor_for(
    data: TaskData,
    folder: Path,
    *,
    budget_s: float,
    workers: int | None = None,
    ray: str | None = None,
    asha: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Executor]:
    """The executor that was asked for, as long as the block lasts.

    Args:
        data: what networks are trained on.
        folder: for its journal, and for files that it needs only while it lives.
        budget_s: time of the whole search, from which follows when an evaluation is taken to hang; inf where trials
            alone end it.
        workers: evaluations at once. None: one for each GPU, or one; on a Ray cluster as many as it has GPUs, or
            machines.
        ray: address of a Ray cluster (`auto`, `HOST:PORT`). None: worker processes on this machine.
        asha: stop trainings early whose curves are hopeless, with Ray Tune.
        say: is told what a user should know, such as that a machine was left out.

    Raises `UserError` where it cannot be had.
    """
    check_choice(ray, asha=asha)
    timeout_s = hangs_after_s(budget_s)
    if ray is None:
        from nas.executors.local import LocalExecutor

        with LocalExecutor(data, folder, workers=workers, timeout_s=timeout_s) as executor:
            yield executor
    elif asha:
        from nas.executors.ray_asha import AshaExecutor

        with AshaExecutor(data, folder, address=ray, workers=workers) as batches:
            yield batches
    else:
        from nas.executors.ray_tasks import RayExecutor

        with RayExecutor(data, folder, address=ray, workers=workers, timeout_s=timeout_s, say=say) as tasks:
            yield tasks
