"""Evaluations as Ray tasks. What a network does wrong is its failure; where a machine goes away Ray repeats what it had
elsewhere, and one that cannot do its work is left out."""

import functools
import os
import pickle
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from nas.errors import UserError
from nas.executors.base import Evaluate, Evaluation, Failure, Finished, Outcome
from nas.executors.journal import Journal
from nas.executors.local import MEMORY_SHARE, Worker
from nas.executors.ray_cluster import Slots, connected, cores_held, nodes_of, slots_of, slots_on
from nas.executors.shared_data import without_files
from nas.executors.training import train_briefly
from nas.executors.worker import Setup
from nas.machine import available_memory_bytes, threads_that_sleep, training_memory_bytes
from nas.measure.host import usable_threads
from nas.measure.others import crowded_now
from nas.measure.process import Limits
from nas.tasks import TaskData

if TYPE_CHECKING:
    from types import ModuleType

RETRIES = 3
"""Number of repetitions of a task whose machine or Ray worker went away."""
LOOK_S = 1.0
"""Seconds between two looks whether the user wants to stop, and which machines there are."""
SAME_VERSION = "install the same version of this program, with the same Python, on each of them"
FAULT = {"node", "host", "why"}
"""Keys of what comes back where a machine could not do its work."""
NODE_LABEL = "ray.io/node-id"
"""Label with its id that Ray gives every machine."""


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """Everything besides the data that a machine of the cluster has to know to evaluate networks."""

    evaluate: Evaluate
    threads: int
    timeout_s: float
    memory_bytes: int | None


class RayExecutor:
    """Each evaluation is a Ray task, which runs it in a supervised process of its own: the limits and the reasons for
    failures are those of `LocalExecutor`. Use it as a context manager.

    A machine that cannot evaluate (another version of this program, a full disk) gets no further evaluation, and those
    it had are begun again elsewhere; machines that join are used.
    """

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
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        Args:
            data: what networks are trained on; sent to each machine once, as an object of Ray's.
            folder: for the journal, on this machine.
            address: see `ray_cluster.connected`.
            workers: evaluations at once; by default see `ray_cluster.slots_of`.
            timeout_s, memory_bytes: limits of one evaluation, as in `LocalExecutor`.
            evaluate: how a network is evaluated; every machine has to be able to import it.
            say: is told which machine was left out, and why.
        """
        self.journal = Journal(folder.absolute() / "outcomes")
        self._data = data
        self._address = address
        self._workers = workers
        self._limits = (timeout_s, memory_bytes)
        self._evaluate = evaluate
        self._say = say
        self._slots = Slots(count=0, cpus=0, gpus=0)
        self._left_out: set[str] = set()
        self._counted_s, self._count = -LOOK_S, 0
        self._under_way: dict[Any, tuple[Evaluation, float | None]] = {}
        self._stack = ExitStack()

    @property
    def capacity(self) -> int:
        """Evaluations at once on the machines that are there now; at least one."""
        if self._workers is None and time.monotonic() - self._counted_s >= LOOK_S:
            usable = [node for node in nodes_of(self._ray) if node.id not in self._left_out]
            self._counted_s, self._count = time.monotonic(), sum(slots_on(node, self._slots) for node in usable)
        return max(1, self._workers or self._count)

    def __enter__(self) -> Self:
        self._ray: ModuleType = self._stack.enter_context(connected(self._address))
        self._slots = slots_of(nodes_of(self._ray), self._workers)
        self._data_ref = self._ray.put(without_files(self._data))
        timeout_s, memory_bytes = self._limits
        self._setup = NodeSetup(
            evaluate=self._evaluate, threads=self._slots.cpus, timeout_s=timeout_s, memory_bytes=memory_bytes
        )
        remote = self._ray.remote(
            num_cpus=self._slots.cpus, num_gpus=self._slots.gpus, max_retries=RETRIES, scheduling_strategy="SPREAD"
        )
        self._task, self._call = remote(by_value(evaluate_here)), remote(by_value(call_there))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()
        self._stack.close()

    def submit(self, task: Evaluation, *, timeout_s: float | None = None) -> None:
        """`timeout_s`: after which this one hangs; None: as for all."""
        setup = self._setup if timeout_s is None else replace(self._setup, timeout_s=timeout_s)
        where = {"label_selector": {NODE_LABEL: f"!in({','.join(sorted(self._left_out))})"}} if self._left_out else {}
        payload = pickle.dumps((setup, task))
        self._under_way[self._task.options(**where).remote(payload, [self._data_ref])] = (task, timeout_s)

    def wait(self) -> list[Finished]:
        found: list[Finished] = []
        while self._under_way and not found:
            ready, _ = self._ray.wait(list(self._under_way), timeout=LOOK_S)
            for reference in ready:
                task, timeout_s = self._under_way.pop(reference)
                result = self._result(reference)
                if result is None:
                    self.submit(task, timeout_s=timeout_s)
                    continue
                if isinstance(result, Outcome):
                    self.journal.write(task, result)
                found.append(Finished(task, result))
        return found

    def abandon(self) -> None:
        for reference in self._under_way:
            self._ray.cancel(reference, force=True)
        self._under_way.clear()

    def rest(self) -> None:
        """Ray ends its processes itself."""

    def quiet(self) -> AbstractContextManager[None]:
        return quiet_here(self._ray)

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function of a module returns on a machine that evaluates, with as many threads as evaluations have.

        Raises `UserError` where it fails there.
        """
        payload = pickle.dumps((self._slots.cpus, function, args, kwargs))
        result = self._ray.get(self._call.remote(payload, []))
        if is_fault(result):
            raise UserError(f"machine {result['host']} of the Ray cluster cannot train: {result['why']}", SAME_VERSION)
        return cast(R, result)

    def _result(self, reference: Any) -> Outcome | Failure | None:
        """The result of an evaluation; None where its machine could not do it: that one is left out from now on.

        Raises `UserError` where no machine is left.
        """
        from ray.exceptions import RayError

        try:
            result: Any = self._ray.get(reference)
        except RayError as error:
            first = str(error).strip().splitlines()[0]
            return Failure(f"lost {RETRIES + 1} times with the machine or process it ran on: {first}")
        if not is_fault(result):
            return cast(Outcome | Failure, result)
        if result["node"] not in self._left_out:
            self._left_out.add(result["node"])
            self._counted_s = -LOOK_S
            self._say(
                f"machine {result['host']} of the Ray cluster is left out, it cannot evaluate networks: {result['why']}"
            )
        if not any(slots_on(n, self._slots) for n in nodes_of(self._ray) if n.id not in self._left_out):
            raise UserError(
                f"no machine of the Ray cluster can evaluate networks, the last one said: {result['why']}",
                SAME_VERSION,
            )
        return None


def by_value(function: Callable[..., Any]) -> Callable[[bytes, list[Any]], Any]:
    """A task for Ray that calls `function` with what a payload holds and with the data; what goes wrong comes back as a
    value that says on which machine and why.

    Ray sends a function that is defined in another one by its code, so that it runs also where this program is missing,
    or is another version: then the function's name is looked up in vain, which is what goes wrong.
    """
    module, name = function.__module__, function.__qualname__

    def call(payload: bytes, data: list[Any]) -> Any:
        import importlib
        import pickle
        import socket

        import ray

        try:
            called = getattr(importlib.import_module(module), name)
            return called(*pickle.loads(payload), data)  # noqa: S301 - from the search that started this task
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this machine's
            last = (str(error).strip().splitlines() or [""])[-1]
            node = ray.get_runtime_context().get_node_id()
            return {"node": node, "host": socket.gethostname(), "why": f"{type(error).__name__}: {last}"}

    return call


@contextmanager
def quiet_here(ray: "ModuleType") -> Iterator[None]:
    """Evaluations on this machine come to their end, and none begins there while the block lasts."""
    here = ray.get_runtime_context().get_node_id()
    with ExitStack() as stack:
        for node in nodes_of(ray):
            if node.id == here:
                stack.enter_context(cores_held(ray, node))
        yield


def is_fault(result: object) -> bool:
    """True if that is what a task of `by_value` returns where its machine could not do its work."""
    return isinstance(result, dict) and set(result) == FAULT


def call_there(
    threads: int, function: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any], data: list[Any]
) -> R:
    """What the Ray task of `RayExecutor.run` does."""
    if crowded_now(threads):
        threads_that_sleep()
    import torch

    torch.set_num_threads(threads)
    return function(*args, **kwargs)


def evaluate_here(setup: NodeSetup, task: Evaluation, data: list[Any]) -> Outcome | Failure:
    """What the Ray task does. `data` holds the reference to the data, in a list so that Ray fetches it only when it is
    needed."""
    host = _host(setup, data[0], os.environ.get("CUDA_VISIBLE_DEVICES"))
    return host.worker.run(task)


class _Host:
    """A supervised worker inside a Ray worker process."""

    def __init__(self, setup: NodeSetup, data: TaskData) -> None:
        # For heartbeat and stderr alone; gone with this process, or with Ray's session where that is killed.
        self.folder = tempfile.TemporaryDirectory(prefix="nas-ray-")
        folder = Path(self.folder.name)
        free, beside = available_memory_bytes(), max(1, usable_threads() // setup.threads)
        memory_bytes = setup.memory_bytes or (None if free is None else int(MEMORY_SHARE * free / beside))
        self.worker = Worker(
            Setup(
                evaluate=setup.evaluate,
                data=data,
                cores=(),
                threads=setup.threads,
                memory_bytes=training_memory_bytes() // beside,
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
