"""The three times of a network on a GPU, which must never be taken for each other, and its energy.

**Device time** is the GPU's alone, by events around many replays. **Call time** is the host's, from images in its
memory to results there: what a limit on latency means. **Throughput** is that of several calls under way at once,
copies included.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nas.measure.devices.cuda_library import CudaLibrary
from nas.measure.devices.nvml import Nvml
from nas.runtimes.base import Inputs
from nas.runtimes.torch_graph import GraphSession

REPLAYS, ROUNDS = 200, 5
"""Replays between two events, so that a network of microseconds is told from the events; pairs of events, of which the
median counts."""


def device_time_ms(
    session: GraphSession, library: CudaLibrary, inputs: Inputs, *, replays: int = REPLAYS, rounds: int = ROUNDS
) -> float:
    """Milliseconds of one replay without copies, on `inputs` `(batch, ...)`, which are uploaded once before."""
    session.run(inputs)
    found = []
    for _ in range(rounds):
        begin, end = library.event(), library.event()
        library.queue()
        begin.record()
        for _ in range(replays):
            session.replay()
        end.record()
        library.synchronise()
        found.append(begin.elapsed_time(end) / replays)
    return sorted(found)[len(found) // 2]


def call_times_ms(session: GraphSession, inputs: Inputs, *, calls: int, interval_ms: float = 0.0) -> list[float]:
    """Milliseconds of each of `calls` calls with `inputs` `(batch, ...)`.

    Args:
        interval_ms: from the start of one to that of the next, in which the process sleeps; 0: at once. A GPU that
            has nothing to do lowers its clock, so calls with pauses take longer.
    """
    found = []
    due = time.perf_counter()
    for _ in range(calls):
        if interval_ms:
            time.sleep(max(0.0, due - time.perf_counter()))
            due += interval_ms / 1e3
        start = time.perf_counter()
        session.run(inputs)
        found.append(1e3 * (time.perf_counter() - start))
    return found


def images_per_s(sessions: Sequence[GraphSession], inputs: Inputs, seconds: float) -> float:
    """Inputs per second while every session has a call with `inputs` `(batch, ...)` under way.

    Args:
        sessions: of one network, each on a device with a stream of its own.
        seconds: about so long.
    """
    for session in sessions:
        session.begin(inputs)
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for session in sessions:
            session.end()
            done += len(inputs)
            session.begin(inputs)
    elapsed = time.perf_counter() - start
    for session in sessions:
        session.end()
    return done / elapsed


@dataclass(frozen=True, slots=True)
class Energy:
    """Of the whole board, by its counter of all energy."""

    joules_per_image: float
    """All that the board used, idle power included."""
    idle_w: float
    """Before, with nothing to do."""
    watts: float
    """Under load."""
    seconds: float
    """Of load."""


def energy(
    nvml: Nvml,
    run: Callable[[], int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Energy | None:
    """Energy of calling `run`, which tells how many images it did, for `seconds`; None where there is no counter.

    The counter moves in steps of 20 to 100 ms, so windows of 10 s and more are right within 1 %. As long before, the
    GPU is left idle.
    """
    before = nvml.energy_j()
    if before is None:
        return None
    start = clock()
    sleep(seconds)
    idle_s = clock() - start
    after = nvml.energy_j()
    begun = nvml.energy_j()
    start, images = clock(), 0
    now = start
    while now - start < seconds:
        images += run()
        now = clock()
    ended = nvml.energy_j()
    if after is None or begun is None or ended is None or not images or idle_s <= 0:
        return None
    joules = ended - begun
    return Energy(joules / images, (after - before) / idle_s, joules / (now - start), now - start)
