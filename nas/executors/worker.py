"""The process that evaluates networks: `python -m nas.executors.worker FD`, with its end of a connection as FD.

It receives a `Setup`, loads the data, answers `READY`, and from then on answers each `Evaluation` with its result. It
notes in the heartbeat file what it is at, and ends with its parent or with the connection. A crash, a hang or a lack of
memory ends this process alone: `nas.executors.local` explains it and starts another one.
"""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from nas.executors.base import Evaluate, Evaluation, Failure, Outcome
from nas.executors.journal import Journal
from nas.executors.shared_data import SharedData
from nas.machine import TRAINING_MEMORY
from nas.measure.heartbeat import Heartbeat
from nas.measure.procfs import die_with_parent
from nas.tasks import TaskData

READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a worker has to know before its first evaluation."""

    evaluate: Evaluate
    data: SharedData | TaskData
    cores: tuple[int, ...]
    """The only ones it may use; empty: wherever it is let."""
    threads: int
    memory_bytes: int
    """Memory that its trainings may count on."""
    heartbeat: Path
    journal: Journal | None
    """Journal that keeps outcomes before they are sent; None: they are not kept."""


def main() -> None:
    die_with_parent()
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError):  # our parent closed its end: there is nothing more to do
        serve(connection)


def serve(connection: Connection) -> None:
    """Evaluate what comes in until the other end is closed (`EOFError`)."""
    setup: Setup = connection.recv()
    heartbeat = Heartbeat(setup.heartbeat)
    heartbeat.note(-1, "starting")
    if setup.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setup.cores)
    os.environ[TRAINING_MEMORY] = str(setup.memory_bytes)
    import torch

    torch.set_num_threads(setup.threads)
    heartbeat.note(-1, "loading")
    data = setup.data.load() if isinstance(setup.data, SharedData) else setup.data
    heartbeat.note(-1, "waiting")
    connection.send(READY)
    while True:
        task: Evaluation = connection.recv()
        heartbeat.note(task.trial, "training")
        result: Outcome | Failure = setup.evaluate(task, data, None)
        if setup.journal is not None and isinstance(result, Outcome):
            setup.journal.write(task, result)
        heartbeat.note(-1, "waiting")
        connection.send(result)


if __name__ == "__main__":
    main()
