"""The process that scores images: `python -m nas.scoring.worker FD`, with its end of a connection as FD.

It receives a `Setup`, opens the bundle, and answers each `Task`. It notes in the heartbeat file what it is at, and ends
with its parent. A crash, a hang or a lack of memory ends this process alone: `nas.scoring.crew` finds out the image and
starts another one. Imports no torch, unless the bundle is for it.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection

from nas.bundles.predictor import Predictor
from nas.errors import UserError
from nas.files.writing import write_whole
from nas.measure.heartbeat import Heartbeat
from nas.measure.procfs import die_with_parent
from nas.scoring.messages import Refusal, Scored, Setup, Task
from nas.scoring.rows import table_bytes, table_of
from nas.scoring.scorer import score

THREADS = 1
"""Threads of a network: one worker is one core, so that its rows do not depend on how many workers there are."""


def main() -> None:
    die_with_parent()
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, BrokenPipeError):  # our parent closed its end: there is nothing more to do
        serve(connection)


def serve(connection: Connection) -> None:
    """Score what comes in until the other end is closed (`EOFError`)."""
    setup: Setup = connection.recv()
    heartbeat = Heartbeat(setup.heartbeat)
    heartbeat.note(-1, "loading")
    if setup.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setup.cores)
    try:
        predictor = Predictor.open(setup.bundle, check=setup.check, threads=THREADS)
    except UserError as error:
        connection.send(Refusal(str(error), error.hint))
        return
    with ThreadPoolExecutor(setup.decoders) as pool:
        while True:
            heartbeat.note(-1, "waiting")
            task: Task = connection.recv()
            connection.send(_done(setup, predictor, pool, heartbeat, task))


def _done(
    setup: Setup, predictor: Predictor, pool: ThreadPoolExecutor, heartbeat: Heartbeat, task: Task
) -> Scored | Refusal:
    rows = score(
        predictor,
        task.items,
        top=setup.top,
        pool=None if task.alone else pool,
        ahead=2 * setup.decoders,
        note=heartbeat.note,
        given_up=task.given_up,
    )
    heartbeat.note(-1, "writing")
    if task.part is not None:
        try:
            write_whole(task.part, table_bytes(table_of(rows)), durable=True)
        except OSError as error:
            return Refusal(error.strerror or str(error), errno=error.errno, filename=str(task.part))
    bad = sum(row.error is not None for row in rows)
    return Scored(number=task.number, count=len(rows), bad=bad, rows=rows if task.part is None else None)


if __name__ == "__main__":
    main()
