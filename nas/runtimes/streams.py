"""One network run by several streams at once, for throughput: calls that do not wait for each other."""

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from nas.deployment import Deployment
from nas.runtimes.base import Inputs, Outputs, Runtime, Session
from search_spaces.signature import TensorSpec

ROUND_S = 0.1
"""One round of calls is aimed at this time: long against a single call, so that its ragged end counts little."""
MIN_CALLS, MAX_CALLS = 4, 256
"""Calls per stream and round."""


class Streams(Protocol):
    """A network loaded for several calls at once."""

    @property
    def input(self) -> TensorSpec:
        """Input of the network."""
        ...

    @property
    def batch(self) -> int:
        """Inputs of one call."""
        ...

    def run_many(self, inputs: Inputs, calls: int) -> Outputs:
        """Run `inputs` (one call's) `calls` times, as many at once as there are streams; the output of one call."""
        ...


@runtime_checkable
class StreamLoader(Protocol):
    """A runtime that has streams of its own."""

    def load_streams(self, path: Path, deployment: Deployment, streams: int) -> Streams:
        """Load `path` for `streams` calls at once, which share `deployment.threads`. Raises as `Runtime.load` does."""
        ...


class StreamSession:
    """A round of calls as one call of a `Session`: what is timed is the whole round.

    The first call measures how many calls make a round of about `ROUND_S`.
    """

    def __init__(self, streams: Streams, count: int) -> None:
        self.input, self.batch = streams.input, streams.batch
        self.calls = count * MIN_CALLS
        """Calls of the network in one call of `run`."""
        self._streams = streams
        self._count = count
        self._settled = False

    def run(self, inputs: Inputs) -> Outputs:
        if not self._settled:
            self._streams.run_many(inputs, self._count)  # the first call of every stream is slow
            start = time.perf_counter()
            self._streams.run_many(inputs, self.calls)
            self.calls = calls_of_a_round((time.perf_counter() - start) / self.calls, self._count)
            self._settled = True
        return self._streams.run_many(inputs, self.calls)


def calls_of_a_round(seconds_per_call: float, streams: int) -> int:
    """Number of calls to make at once where one more costs `seconds_per_call` (> 0); a multiple of `streams`."""
    per_stream = round(ROUND_S / seconds_per_call / streams)
    return streams * min(MAX_CALLS, max(MIN_CALLS, per_stream))


class ThreadedStreams:
    """Several sessions, each driven by a thread of its own; whoever is idle takes the next call."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.input, self.batch = sessions[0].input, sessions[0].batch
        self._sessions = sessions
        # Kept alive: the scheduler's account of a thread's waiting time ends with the thread.
        self._threads = ThreadPoolExecutor(len(sessions), thread_name_prefix="stream")

    def run_many(self, inputs: Inputs, calls: int) -> Outputs:
        numbers = itertools.count()

        def work(session: Session) -> Outputs | None:
            output = None
            while next(numbers) < calls:
                output = session.run(inputs)
            return output

        outputs = list(self._threads.map(work, self._sessions))
        return next(output for output in outputs if output is not None)


def load_streams(runtime: Runtime, path: Path, deployment: Deployment, streams: int) -> StreamSession:
    """Load `path` for `streams` calls at once (at most `deployment.threads`, which they share).

    A runtime without streams of its own gets so many sessions with threads / streams threads each.

    Raises as `Runtime.load` does, and ValueError for more streams than threads.
    """
    if not 1 <= streams <= deployment.threads:
        raise ValueError(f"{streams} streams cannot share {deployment.threads} threads")
    if isinstance(runtime, StreamLoader):
        return StreamSession(runtime.load_streams(path, deployment, streams), streams)
    share = replace(deployment, threads=deployment.threads // streams)
    return StreamSession(ThreadedStreams([runtime.load(path, share) for _ in range(streams)]), streams)
