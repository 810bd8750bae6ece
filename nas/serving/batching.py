"""Calls of a network with whatever waits: one thread, one call at a time, as many examples as the batch has room."""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.runtimes.base import Inputs, Outputs
from nas.serving.refusal import Refusal, busy

NICENESS = 5
"""Of the threads that work, against 0 of the event loop on the same cores."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Ran:
    """What a call said of one example."""

    output: NDArray[np.float32]
    """Without batch axis."""
    started_at: float
    """Start of the call, as `time.perf_counter` counts."""
    infer_s: float
    images: int
    """Examples in the same call."""


@dataclass(slots=True, eq=False)
class Waiting:
    """An example that waits for its call."""

    inputs: Inputs
    """(1, ...), as the network takes it."""
    arrived_at: float
    """When its request arrived, as `time.perf_counter` counts."""
    due: float
    """When its answer is of no more use."""
    queued_at: float = field(default_factory=time.perf_counter)
    ran: "Future[Ran]" = field(default_factory=Future)


class Batcher:
    """Runs examples in the order of their arrival. `submit` may be called from any thread."""

    def __init__(
        self,
        run: Callable[[Inputs], Outputs],
        batch: int,
        wait_s: float = 0.0,
        after: Callable[[int, float], None] | None = None,
    ) -> None:
        """`run` takes 1 to `batch` inputs; a call waits up to `wait_s` for more of them. `after` is told how many were
        answered together, and when the first of them had arrived."""
        self._run, self._batch, self._wait_s, self._after = run, batch, wait_s, after
        self._queue: deque[Waiting] = deque()  # of which appending and taking are safe among threads
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="network", initializer=step_back)
        self._arrived = threading.Event()
        self._running_since: float | None = None

    @property
    def waiting(self) -> int:
        """Examples whose call has not begun."""
        return len(self._queue)

    def submit(self, example: Waiting) -> None:
        """Put an example at the end of the queue; its `ran` has the outcome, an exception for whatever goes wrong: a
        `Refusal` where its turn comes too late."""
        self._queue.append(example)
        self._arrived.set()
        self._thread.submit(self._take).add_done_callback(_report)

    def running_s(self) -> float:
        """Seconds since the start of the present call; 0 between calls."""
        since = self._running_since
        return 0.0 if since is None else time.perf_counter() - since

    def close(self) -> None:
        """Finish what waits, and take no more."""
        self._thread.shutdown(wait=True)

    def _take(self) -> None:
        """One call, for what waits; nothing where an earlier one has taken it already."""
        waiting = self._next()
        if not waiting:
            return
        try:
            self._call(waiting)
        finally:
            for example in waiting:
                if not example.ran.done():
                    example.ran.set_exception(RuntimeError("the network could not be run"))

    def _next(self) -> list[Waiting]:
        self._wait_for_more()
        taken: list[Waiting] = []
        while self._queue and len(taken) < self._batch:
            example = self._queue.popleft()
            if not example.ran.set_running_or_notify_cancel():
                continue
            late_s = time.perf_counter() - example.due
            if late_s > 0:
                example.ran.set_exception(busy("busy: its turn came too late", late_s))
            else:
                taken.append(example)
        return taken

    def _wait_for_more(self) -> None:
        """Until there are enough for a whole batch, or the first has waited long enough."""
        while self._wait_s and 0 < len(self._queue) < self._batch:
            self._arrived.clear()
            left_s = self._queue[0].queued_at + self._wait_s - time.perf_counter()
            if left_s <= 0 or (len(self._queue) < self._batch and not self._arrived.wait(left_s)):
                return

    def _call(self, waiting: Sequence[Waiting]) -> None:
        inputs = waiting[0].inputs if len(waiting) == 1 else np.concatenate([w.inputs for w in waiting])
        self._running_since = start = time.perf_counter()
        try:
            outputs = self._run(inputs)
        finally:
            self._running_since = None
        infer_s = time.perf_counter() - start
        for example, output in zip(waiting, outputs, strict=True):
            example.ran.set_result(Ran(output, start, infer_s, len(waiting)))
        if self._after is not None:
            self._after(len(waiting), min(example.arrived_at for example in waiting))


def step_back() -> None:
    """Let the event loop go before this thread: under too much load it refuses at once what cannot be answered."""
    if sys.platform == "linux":  # where each thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _report(call: "Future[Any]") -> None:
    """A call that failed is a defect of the server: its traceback goes to the log."""
    error = call.exception()
    if error is not None and not isinstance(error, Refusal):
        _log.error("a call of the network failed", exc_info=error)
