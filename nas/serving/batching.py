"""Calls of a network with whatever waits: one thread, one call at a time, as many examples as the batch has room."""

import contextlib
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

HERE_S = 0.01
"""Longest call that `Batcher.run_here` runs: the event loop, which calls it, answers nobody meanwhile."""
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
    promised: bool = False
    """It came to an idle server, and is run however late."""
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
        self._make_s = self._call_s = 0.0
        """What the latest making of an input, and the latest call, took."""
        self._lock = threading.Lock()
        """Of whether it is closed, so that nothing comes behind the end."""
        self._turn = threading.Lock()
        """Of the network: it is for one thread at a time."""
        self._closed = self._failed = False
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
            RuntimeError: it was closed, or its thread has failed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("no more calls are taken")
            self._queue.append(example)
            self._turns.put(True)
        if self._wait_s:
            self._arrived.set()

    def run_here(self, inputs: Inputs) -> Ran | None:
        """What the network says of (1, ...), called in this thread: handing over and back costs more than many a call.

        Returns:
            None: it is left to `submit`, since something else waits or runs, calls wait for more, the latest call took
            longer than `HERE_S`, or no calls are taken.

        Raises:
            Exception: whatever goes wrong in the network.
        """
        if self._wait_s or self._closed or self._call_s > HERE_S or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._queue:
                return None
            outputs, start = self._timed(inputs)
            if self._after is not None:
                self._after(1, start)
            return Ran(outputs[0], start, self._call_s, 1)
        finally:
            self._turn.release()

    @property
    def failed(self) -> bool:
        """Its thread has ended without being told to: nothing is run any more."""
        return self._failed

    def running_s(self) -> float:
        """Seconds since the start of the present call, or of making an input; 0 between them."""
        since = self._running_since
        return 0.0 if since is None else time.perf_counter() - since

    def close(self) -> None:
        """Finish what waits, and take no more."""
        with self._lock:
            self._closed = True
            self._turns.put(False)
        self._thread.join()

    def _work(self) -> None:
        try:
            step_back()
            while self._turns.get():
                try:
                    with self._turn:
                        self._take()
                except Exception:  # noqa: BLE001  # of one call: its examples have failed, and the next are answered
                    _log.exception("a call of the network failed")
        except BaseException:  # noqa: BLE001  # said by `failed`
            self._failed = True
            _log.exception("the network's thread has ended")
        finally:
            self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """Nobody is there any more to run what waits."""
        with self._lock:
            self._closed = True
        while self._queue:
            example = self._queue.popleft()
            if example.ran.set_running_or_notify_cancel():
                example.ran.set_exception(RuntimeError("the network's thread has ended"))

    def _take(self) -> None:
        """One call, for what waits; nothing where an earlier one has taken it already."""
        taken: list[Waiting] = []
        try:
            self._fill(taken)
            waiting = [example for example in taken if not _is_late(example)]
            if waiting:
                self._call(waiting)
        finally:
            for example in taken:
                if not example.ran.done():
                    example.ran.set_exception(RuntimeError("the network could not be run"))

    def _fill(self, taken: list[Waiting]) -> None:
        """Take what waits, until the batch is full or making one more input would make the first answer late."""
        self._wait_for_more()
        while self._queue and len(taken) < self._batch:
            more_s = self._make_s if callable(self._queue[0].inputs) else 0.0
            if taken and time.perf_counter() + more_s + self._call_s > taken[0].due:
                return
            example = self._queue.popleft()
            if not example.ran.set_running_or_notify_cancel():
                continue
            if not _is_late(example) and self._is_made(example):
                taken.append(example)

    def _is_made(self, example: Waiting) -> bool:
        """True if the example's input is there, or could be made; else its `ran` has the reason."""
        if callable(example.inputs):
            self._running_since = start = time.perf_counter()
            try:
                example.inputs = example.inputs()
            except Exception as error:  # noqa: BLE001  # whatever a file does to its decoder is that file's outcome
                example.ran.set_exception(error)
                return False
            except BaseException:
                example.ran.set_exception(RuntimeError("the image could not be decoded"))
                raise
            finally:
                self._running_since = None
            self._make_s = time.perf_counter() - start
        return True

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
        outputs, start = self._timed(inputs)
        for example, output in zip(waiting, outputs, strict=True):
            example.ran.set_result(Ran(output, start, self._call_s, len(waiting)))
        if self._after is not None:
            self._after(len(waiting), min(example.arrived_at for example in waiting))

    def _timed(self, inputs: Inputs) -> tuple[Outputs, float]:
        """A call's outputs, and when it began; `_call_s` is what it took."""
        self._running_since = start = time.perf_counter()
        try:
            outputs = self._run(inputs)
        finally:
            self._running_since = None
        self._call_s = time.perf_counter() - start
        return outputs, start


def step_back() -> None:
    """Let the event loop go before this thread: under too much load it refuses at once what cannot be answered."""
    if sys.platform == "linux":  # where each thread has a priority of its own
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # it works as well without
            now = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, max(now, NICENESS))  # going back takes a privilege


def _is_late(example: Waiting) -> bool:
    """True if an answer is of no more use; its `ran` then says so."""
    late_s = time.perf_counter() - example.due
    if late_s <= 0 or example.promised:
        return False
    example.ran.set_exception(busy("busy: its turn came too late", late_s))
    return True
