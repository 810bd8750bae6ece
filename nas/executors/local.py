"""Evaluations in worker processes on this machine, each on cores (and a GPU) of its own, supervised and replaced when
they die."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from nas.errors import UserError
from nas.executors.base import Evaluate, Evaluation, Failure, Finished, Outcome
from nas.executors.gpus import VISIBLE, visible_gpus, workers_here
from nas.executors.journal import Journal
from nas.executors.shared_data import SharedData, share
from nas.executors.training import train_briefly
from nas.executors.worker import READY, Setup
from nas.machine import available_memory_bytes, give_back_memory, training_memory_bytes
from nas.measure.host import affinity, usable_threads
from nas.measure.process import POLL_S, Limits, SupervisedProcess
from nas.measure.topology import performance_cores
from nas.tasks import TaskData

P = ParamSpec("P")
R = TypeVar("R")

MEMORY_SHARE = 0.8
"""Share of the memory free at the start that all workers together may take."""
EXIT_S = 20.0
"""Seconds for a process that has closed its connection to come to its end: Python may have much to tidy up."""
STARTS = 2
"""Attempts to start a worker; when the last one fails it is nobody's fault but the machine's."""


class Worker:
    """One long-lived worker process; a new one is started when it died, with the data loaded again."""

    def __init__(self, setup: Setup, folder: Path, limits: Limits, gpu: str | None = None) -> None:
        """Starts the process. `gpu`: the only one that it sees; None: all that this process does."""
        folder.mkdir(parents=True, exist_ok=True)
        self._setup = setup
        self._folder = folder
        self._limits = limits
        self._variables = {} if gpu is None else {VISIBLE: gpu}
        self._ready = self._rests = False
        self.task: Evaluation | None = None
        """Evaluation that the worker is busy with."""
        self._start()

    @property
    def connection(self) -> Connection:
        """Readable when the worker has something to say, or has died."""
        return self._connection

    def submit(self, task: Evaluation, timeout_s: float | None = None) -> None:
        """Evaluate `task` next, for at most `timeout_s` (None: as usual).

        Raises `UserError` where no worker can be started.
        """
        if self._rests:
            self._start()
        self._await_ready()
        self._process.limits = self._limits if timeout_s is None else replace(self._limits, timeout_s=timeout_s)
        self.task = task
        with suppress(OSError):  # it died while it had nothing to do: `poll` says so
            self._connection.send(task)

    def poll(self) -> Outcome | Failure | None:
        """The result of the task it is at, None while that is under way. A dead worker is replaced."""
        if self._connection.poll():
            try:
                result: Outcome | Failure = self._connection.recv()
            except (EOFError, OSError):
                self._process.ended(EXIT_S)  # and then we know how
                return self._replaced()
            self.task = None
            return result
        return self._replaced() if self._process.enforce_limits() else None

    def run(self, task: Evaluation) -> Outcome | Failure:
        """Evaluate `task` and wait for the result."""
        self.submit(task)
        while True:
            wait_for_any([self._connection], POLL_S)
            result = self.poll()
            if result is not None:
                return result

    def close(self) -> None:
        """End the process."""
        self._process.end()
        self._connection.close()

    def abandon(self) -> None:
        """Give up the task it is at, if any: a training cannot be interrupted but with its process."""
        if self.task is not None:
            self.close()
            self.task = None
            self._start()

    def rest(self) -> None:
        """End the process, and with it the memory that it holds; the next evaluation starts it again."""
        self.close()
        self._rests = True

    def stand_still(self) -> None:
        """Stop the process where it is, until `go_on`."""
        self._process.stand_still()

    def go_on(self) -> None:
        """Go on; the time in between counts against no limit."""
        self._process.go_on()

    def _start(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            self._process = SupervisedProcess(
                "nas.executors.worker",
                self._folder,
                self._limits,
                arguments=[str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                trains=True,
                variables=self._variables,
            )
        self._connection = ours
        self._ready = self._rests = False
        with suppress(OSError):  # it died at once: `_await_ready` says how
            ours.send(self._setup)

    def _await_ready(self) -> None:
        for attempt in range(1, STARTS + 1):
            while not self._ready:
                try:
                    if self._connection.poll(POLL_S):
                        self._ready = self._connection.recv() == READY
                    elif self._process.enforce_limits():
                        break
                except (EOFError, OSError):
                    break
            if self._ready:
                return
            self._process.ended(EXIT_S)
            self._process.end()
            death = self._process.death() or "it ended without a word"
            if attempt == STARTS:
                raise UserError(f"no worker process can be started: {death}", f"see {self._folder / 'stderr'}")
            self._connection.close()
            self._start()

    def _replaced(self) -> Failure:
        self.close()
        reason = self._process.death() or "its process ended without a word"
        self.task = None
        self._start()
        return Failure(reason)


class LocalExecutor:
    """Worker processes, each with an equal share of this machine's cores and memory, and one of its GPUs.

    With one worker the result of a search depends on its seed alone; with more, what is proposed next depends on which
    evaluation ended first. Use it as a context manager.
    """

    def __init__(
        self,
        data: TaskData,
        folder: Path,
        *,
        workers: int | None = None,
        timeout_s: float = 3600.0,
        memory_bytes: int | None = None,
        evaluate: Evaluate = train_briefly,
    ) -> None:
        """
        Args:
            data: what networks are trained on; written to `folder` once, for all workers.
            folder: for what only executors on it need: the data (as long as this one lives) and the journal.
            workers: processes, each of which evaluates one network at a time; at most as many as there are cores. More
                than there are GPUs share these. None: one for each GPU, or one where there is none.
            timeout_s: longest time of one evaluation.
            memory_bytes: private memory of each worker; by default its share of 80 % of what is free.
            evaluate: how a network is evaluated.
        """
        workers = workers_here(workers)
        if not 1 <= workers <= usable_threads():
            raise UserError(
                f"{workers} workers were asked for, this machine has {usable_threads()} usable cores",
                f"ask for 1 to {usable_threads()}",
            )
        give_back_memory()
        free = available_memory_bytes()
        if memory_bytes is None and free is not None:
            memory_bytes = int(MEMORY_SHARE * free / workers)
        self._data = data
        self._folder = folder
        self._limits = Limits(timeout_s, memory_bytes)
        self.journal = Journal(folder.absolute() / "outcomes")
        self._evaluate = evaluate
        self._cores = shares(performance_cores(affinity()), workers)
        self._threads = max(1, usable_threads() // workers)
        self._workers: list[Worker] = []

    @property
    def capacity(self) -> int:
        return len(self._cores)

    def __enter__(self) -> Self:
        """Starts the workers without waiting for them."""
        data, gpus = share(self._data, self._folder / "data"), visible_gpus()
        for number, cores in enumerate(self._cores):
            folder = self._folder / f"worker-{number}"
            gpu = gpus[number % len(gpus)] if len(gpus) > 1 else None
            self._workers.append(Worker(self._setup(data, cores, folder), folder, self._limits, gpu))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    def submit(self, task: Evaluation, *, timeout_s: float | None = None) -> None:
        """`timeout_s`: after which this one hangs; None: as for all.

        Raises `UserError` where no worker process can be started, `ValueError` where all are busy.
        """
        idle = next((w for w in self._workers if w.task is None), None)
        if idle is None:
            raise ValueError(f"all {self.capacity} workers are busy")
        idle.submit(task, timeout_s)

    def wait(self) -> list[Finished]:
        busy = [w for w in self._workers if w.task is not None]
        found: list[Finished] = []
        while busy and not found:
            wait_for_any([w.connection for w in busy], POLL_S)
            for worker in busy:
                task = worker.task
                assert task is not None
                result = worker.poll()
                if result is not None:
                    found.append(Finished(task, result))
        return found

    def abandon(self) -> None:
        for worker in self._workers:
            worker.abandon()

    def rest(self) -> None:
        for worker in self._workers:
            if worker.task is None:
                worker.rest()

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns on a machine that evaluates, which is this one."""
        return function(*args, **kwargs)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Workers stand still while the block lasts, so that a measurement has all cores to itself."""
        for worker in self._workers:
            worker.stand_still()
        try:
            yield
        finally:
            for worker in self._workers:
                worker.go_on()

    def _setup(self, data: SharedData, cores: tuple[int, ...], folder: Path) -> Setup:
        return Setup(
            evaluate=self._evaluate,
            data=data,
            cores=cores,
            threads=self._threads,
            memory_bytes=training_memory_bytes() // len(self._cores),
            heartbeat=folder.absolute() / "heartbeat",
            journal=self.journal,
        )


def shares(cores: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """The cores in as many disjoint groups of (nearly) equal size; empty groups where the system names no cores."""
    return [tuple(cores[len(cores) * i // workers : len(cores) * (i + 1) // workers]) for i in range(workers)]
