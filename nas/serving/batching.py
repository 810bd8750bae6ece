"""Calls of a network with whatever waits: one thread, one call at a time, as many examples as the batch has room."""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from nas.runtimes.base import Inputs, Outputs
from nas.serving.refusal import busy

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

    inputs: Inputs | Callable[[], Inputs]
    """(1, ...), as the network takes it; or what makes it, called in the network's thread when its turn comes."""
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
        self._turns: SimpleQueue[bool] = SimpleQueue()
        """One True for each example, and False at the end: cheaper than a future for each."""
        self._arrived = threading.Event()
        self._running_since: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="network", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Examples whose call has not begun."""
        return len(self._queue)

    def submit(self, example: Waiting) -> None:
        """Put an example at the end of the queue; its `ran` has the outcome, an exception for whatever goes wrong: a
        `Refusal` where its turn comes too late.

        Raises:
            RuntimeError: it was closed.
        """
        if self._closed:
            raise RuntimeError("no more calls are taken")
        self._queue.append(example)
        if self._wait_s:
            self._arrived.set()
        self._turns.put(True)

    def running_s(self) -> float:
        """Seconds since the start of the present call; 0 between calls."""
        since = self._running_since
        return 0.0 if since is None else time.perf_counter() - since

    def close(self) -> None:
        """Finish what waits, and take no more."""
        self._closed = True
        self._turns.put(False)
        self._thread.join()

    def _work(self) -> None:
        step_back()
        while self._turns.get():
            try:
                self._take()
            except Exception:  # noqa: BLE001  # of one call: its examples have failed, and the next are answered
                _log.exception("a call of the network failed")

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
            elif _is_made(example):
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
        ready = [w.inputs for w in waiting if not callable(w.inputs)]
        inputs = ready[0] if len(ready) == 1 else np.concatenate(ready)
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


def _is_made(example: Waiting) -> bool:
    """True if the example's input is there, or could be made; else its `ran` has the reason."""
    if callable(example.inputs):
        try:
            example.inputs = example.inputs()
        except Exception as error:  # noqa: BLE001  # whatever a file does to its decoder is that file's outcome
            example.ran.set_exception(error)
            return False
    return True
