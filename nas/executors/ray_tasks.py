"""Evaluations as Ray tasks. What a network does wrong is its failure; what a machine does wrong is Ray's to repeat."""

import functools
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nas.errors import UserError
from nas.executors.base import Evaluate, Evaluation, Failure, Finished, Outcome
from nas.executors.journal import Journal
from nas.executors.local import MEMORY_SHARE, Worker
from nas.executors.ray_cluster import Slots, connected, cores_held, nodes_of, slots_of
from nas.executors.shared_data import without_files
from nas.executors.training import train_briefly
from nas.executors.worker import Setup
from nas.machine import available_memory_bytes
from nas.measure.process import Limits
from nas.tasks import TaskData

if TYPE_CHECKING:
    from types import ModuleType

RETRIES = 3
"""Number of repetitions of a task whose machine or Ray worker went away."""
LOOK_S = 1.0
"""Seconds between two looks whether the user wants to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """Everything besides the data that a machine of the cluster has to know to evaluate networks."""

    evaluate: Evaluate
    threads: int
    timeout_s: float
    memory_bytes: int | None


class RayExecutor:
    """Each evaluation is a Ray task, which runs it in a supervised process of its own: the limits and the reasons for
    failures are those of `LocalExecutor`. Use it as a context manager."""

    def __init__(
        self,
        data: TaskData,
        folder: Path,
        *,
        address: str,
        workers: int | None = None,
        timeout_s: float = 3600.0,
        memory_bytes: int | None = None,
        evaluate: Evaluate = train_briefly,
    ) -> None:
        """
        Args:
            data: what networks are trained on; sent to each machine once, as an object of Ray's.
            folder: for the journal, on this machine.
            address: see `ray_cluster.connected`.
            workers: evaluations at once; by default one per GPU, or one per machine where there are none.
            timeout_s, memory_bytes: limits of one evaluation, as in `LocalExecutor`.
            evaluate: how a network is evaluated; every machine has to be able to import it.
        """
        self.journal = Journal(folder.absolute() / "outcomes")
        self._data = data
        self._address = address
        self._workers = workers
        self._limits = (timeout_s, memory_bytes)
        self._evaluate = evaluate
        self._slots = Slots(count=0, cpus=0, gpus=0)
        self._under_way: dict[Any, Evaluation] = {}
        self._stack = ExitStack()

    @property
    def capacity(self) -> int:
        return self._slots.count

    def __enter__(self) -> Self:
        self._ray: ModuleType = self._stack.enter_context(connected(self._address))
        self._slots = slots_of(nodes_of(self._ray), self._workers)
        self._data_ref = self._ray.put(without_files(self._data))
        timeout_s, memory_bytes = self._limits
        self._setup = NodeSetup(
            evaluate=self._evaluate, threads=self._slots.cpus, timeout_s=timeout_s, memory_bytes=memory_bytes
        )
        self._task = self._ray.remote(
            num_cpus=self._slots.cpus, num_gpus=self._slots.gpus, max_retries=RETRIES, scheduling_strategy="SPREAD"
        )(evaluate_here)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()
        self._stack.close()

    def submit(self, task: Evaluation) -> None:
        self._under_way[self._task.remote(self._setup, [self._data_ref], task)] = task

    def wait(self) -> list[Finished]:
        ready: list[Any] = []
        while self._under_way and not ready:
            ready, _ = self._ray.wait(list(self._under_way), timeout=LOOK_S)
        found = [Finished(self._under_way[reference], self._result(reference)) for reference in ready]
        for reference, finished in zip(ready, found, strict=True):
            del self._under_way[reference]
            if isinstance(finished.result, Outcome):
                self.journal.write(finished.task, finished.result)
        return found

    def abandon(self) -> None:
        for reference in self._under_way:
            self._ray.cancel(reference, force=True)
        self._under_way.clear()

    def quiet(self) -> AbstractContextManager[None]:
        return quiet_here(self._ray)

    def _result(self, reference: Any) -> Outcome | Failure:
        from ray.exceptions import RayError, RayTaskError

        try:
            result: Outcome | Failure = self._ray.get(reference)
        except RayTaskError as error:
            # Not the network's fault: the code that runs there is ours.
            last = str(error).strip().splitlines()[-1]
            raise UserError(
                f"a machine of the Ray cluster cannot evaluate networks: {last}",
                "install the same version of this program, with the same Python, on each of them",
            ) from error
        except RayError as error:
            first = str(error).strip().splitlines()[0]
            return Failure(f"lost {RETRIES + 1} times with the machine or process it ran on: {first}")
        return result


@contextmanager
def quiet_here(ray: "ModuleType") -> Iterator[None]:
    """Evaluations on this machine come to their end, and none begins there while the block lasts."""
    here = ray.get_runtime_context().get_node_id()
    with ExitStack() as stack:
        for node in nodes_of(ray):
            if node.id == here:
                stack.enter_context(cores_held(ray, node))
        yield


def evaluate_here(setup: NodeSetup, data: list[Any], task: Evaluation) -> Outcome | Failure:
    """The Ray task. `data` holds the reference to the data, in a list so that Ray fetches it only when it is needed."""
    host = _host(setup, data[0], os.environ.get("CUDA_VISIBLE_DEVICES"))
    return host.worker.run(task)


class _Host:
    """A supervised worker inside a Ray worker process."""

    def __init__(self, setup: NodeSetup, data: TaskData) -> None:
        # For heartbeat and stderr alone; gone with this process, or with Ray's session where that is killed.
        self.folder = tempfile.TemporaryDirectory(prefix="nas-ray-")
        folder = Path(self.folder.name)
        free = available_memory_bytes()
        memory_bytes = setup.memory_bytes or (None if free is None else int(MEMORY_SHARE * free))
        self.worker = Worker(
            Setup(
                evaluate=setup.evaluate,
                data=data,
                cores=(),
                threads=setup.threads,
                heartbeat=folder / "heartbeat",
                journal=None,
            ),
            folder,
            Limits(setup.timeout_s, memory_bytes),
        )
        weakref.finalize(self, self.worker.close)


@functools.lru_cache(maxsize=1)
def _host(setup: NodeSetup, data: Any, visible_gpus: str | None) -> _Host:
    """One worker per Ray worker process, kept between tasks: loading torch and the data takes seconds.

    A Ray worker process serves one search and runs one task at a time. A change of `visible_gpus`, which a process can
    only be told at its start, makes a new worker.
    """
    import ray

    return _Host(setup, ray.get(data))
