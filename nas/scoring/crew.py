"""Processes on this machine that score images, supervised: whoever dies is replaced, and a fatal image found out.

A file can end the process that decodes it, by a fault of a C library or by the memory it takes. The images of a task
whose process died are tried again one at a time; one that was under way in `TRIES` deaths is given up, and its row says
why. All others of the task get the rows that they would have had.
"""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from types import TracebackType
from typing import Self

from nas.bundles.receipt import Receipt
from nas.deployment import CPU
from nas.errors import UserError
from nas.machine import available_memory_bytes
from nas.measure.host import affinity, usable_threads
from nas.measure.process import POLL_S, Limits, SupervisedProcess
from nas.measure.topology import performance_cores
from nas.scoring.messages import Refusal, Scored, Setup, Task

TRIES = 3
"""Attempts at an image whose process dies: one beside others, then alone."""
STARTS = 3
"""Deaths in a row that no image explains, until it is the machine's fault or ours."""
IMAGE_S = 120.0
"""Longest time for one image: a decoder that takes longer hangs."""
MEMORY_SHARE = 0.8
"""Share of the memory free at the start that all workers together may take."""
EXIT_S = 20.0
"""Seconds for a process that has closed its connection to come to its end."""


def setups(bundle: Path, receipt: Receipt, *, workers: int | None, top: int, check: bool = False) -> list[Setup]:
    """How each worker of this machine is set up: one for each fast core, or `workers`; of a GPU, one.

    Raises `UserError` for more workers than there are cores.
    """
    cores = performance_cores(affinity())
    most = max(1, usable_threads())
    if workers is not None and workers > most:
        raise UserError(
            f"{workers} workers were asked for, this machine has {most} usable cores", f"ask for 1 to {most}"
        )
    common = Setup(bundle=bundle, check=check, top=top, heartbeat=Path())
    if receipt.deployment.device != CPU:
        count = workers or 1
        return [replace(common, decoders=max(2, most // count))] * count
    count = workers or most
    mine = [cores[k : k + 1] for k in range(count)] if len(cores) >= count else [()] * count
    return [replace(common, cores=tuple(own)) for own in mine]


class Crew:
    """Worker processes. Use it as a context manager: they are started with it, and end with it."""

    def __init__(self, setups: Sequence[Setup], *, image_s: float = IMAGE_S) -> None:
        """
        Args:
            setups: one for each worker; their `heartbeat` is set here.
            image_s: see `IMAGE_S`.
        """
        self._setups = setups
        self._image_s = image_s
        self._workers: list[_Worker] = []

    @property
    def capacity(self) -> int:
        """Number of tasks that can be under way."""
        return len(self._setups)

    @property
    def idle(self) -> int:
        """Number of tasks that can be submitted now."""
        return sum(worker.task is None for worker in self._workers)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="nas-scoring-")  # for heartbeats and stderr
        free = available_memory_bytes()
        limits = Limits(self._image_s, int(MEMORY_SHARE * free / len(self._setups)))
        for number, setup in enumerate(self._setups):
            folder = Path(self._folder.name) / str(number)
            folder.mkdir()
            self._workers.append(_Worker(replace(setup, heartbeat=folder / "heartbeat"), folder, limits))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._folder.cleanup()

    def submit(self, task: Task) -> None:
        """Score the images of `task` next; `ValueError` where nobody is idle."""
        worker = next((worker for worker in self._workers if worker.task is None), None)
        if worker is None:
            raise ValueError(f"all {self.capacity} workers are busy")
        worker.submit(task)

    def wait(self, timeout_s: float = POLL_S) -> list[Scored]:
        """The tasks that have come to their end, after waiting for one for up to `timeout_s`.

        Raises:
            UserError: the bundle cannot be opened, or workers die whatever they are given.
            OSError: a part cannot be written.
        """
        busy = [worker for worker in self._workers if worker.task is not None]
        wait_for_any([worker.connection for worker in busy], min(timeout_s, POLL_S))
        return [done for worker in busy if (done := worker.poll()) is not None]


class _Worker:
    """One worker process, the task it is at, and what is known of the deaths that this task has caused."""

    def __init__(self, setup: Setup, folder: Path, limits: Limits) -> None:
        self._setup = setup
        self._folder = folder
        self._limits = limits
        self._deaths: dict[int, int] = {}
        self._unexplained = 0
        self.task: Task | None = None
        self._start()

    @property
    def connection(self) -> Connection:
        """Readable when the worker has something to say, or has died."""
        return self._connection

    def submit(self, task: Task) -> None:
        self._deaths, self._unexplained = {}, 0
        self._send(task)

    def poll(self) -> Scored | None:
        """The result of the task it is at; None while that is under way. A dead worker is replaced."""
        answer = self._received()
        if isinstance(answer, Refusal):
            raise answer.error()
        if answer is not None:
            self.task = None
        return answer

    def _received(self) -> Scored | Refusal | None:
        try:
            if self._connection.poll():
                answer: Scored | Refusal = self._connection.recv()
                return answer
            if not self._process.enforce_limits():
                return None
        except (EOFError, OSError):
            self._process.ended(EXIT_S)  # and then we know how
        self._try_again()
        return None

    def close(self) -> None:
        self._process.end()
        self._connection.close()

    def _start(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            self._process = SupervisedProcess(
                "nas.scoring.worker", self._folder, self._limits, arguments=[str(descriptor)], pass_fds=[descriptor]
            )
        self._connection = ours
        with suppress(OSError):  # it died at once: `poll` says how
            ours.send(self._setup)

    def _send(self, task: Task) -> None:
        self.task = task
        with suppress(OSError):  # it died while it had nothing to do: `poll` says so
            self._connection.send(task)

    def _try_again(self) -> None:
        """Give the task to a new process, without the image that has ended too many."""
        task = self.task
        assert task is not None
        self.close()
        why = self._process.death() or "its process ended without a word"
        culprit = self._process.step().index
        given_up = dict(task.given_up)
        if culprit < 0:
            self._unexplained += 1
            if self._unexplained == STARTS:
                raise UserError(f"the processes that score images die: {why}", "try the bundle on one image: run.py")
        elif task.alone:
            self._deaths[culprit] = self._deaths.get(culprit, 1) + 1
            if self._deaths[culprit] == TRIES:
                given_up[culprit] = f"the process that read it died {TRIES} times: {why}"
        self._start()
        self._send(replace(task, alone=True, given_up=given_up))
