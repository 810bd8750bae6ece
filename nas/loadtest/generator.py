"""The process that makes the load: `python -m nas.loadtest.generator FOLDER`, a process of its own so that nothing else
delays its requests.

FOLDER holds `job.json` (a `Job`) and `requests.npz` (the requests as bytes, and the expected answers); it gets
`records.npz` and `generator.json`.
"""

import ctypes
import gc
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.loadtest.answers import READERS, phases_ms
from nas.loadtest.engine import Engine, Following, nothing
from nas.loadtest.plan import MOST_RAMP_S, RAMP_S, ClosedLoop, Job, OpenLoop, drawn_images, poisson_arrivals_s
from nas.loadtest.timer import now_s
from nas.measure.host import affinity
from nas.measure.procfs import die_with_parent, snapshot
from nas.measure.statistics import Activity

JOB, REQUESTS, RECORDS, SEEN = "job.json", "requests.npz", "records.npz", "generator.json"
OPEN_CONNECTIONS = 16
"""Opened before an open loop; more are opened when all are in use."""
AFTER_FAILURE_S = 0.05
"""Pause of a closed loop's client before it asks again: a server that is gone is not asked a million times."""
START_S = 0.05
"""From the decision to begin to the first request."""
_PR_SET_TIMERSLACK = 29


def main(folder: Path) -> None:
    die_with_parent()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # wake up when asked, not up to 50 µs later
    job = Job.from_json(json.loads((folder / JOB).read_text(encoding="utf-8")))
    requests, expected = read_requests(folder / REQUESTS)
    engine = Engine(
        (job.host, job.port),
        requests,
        expected,
        READERS[job.reader],
        job.timeout_s,
        math.inf if job.slo_ms is None else job.slo_ms / 1e3,
        job.most_late,
    )
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection takes milliseconds, and a trial leaves no cycles
    connections = job.load.clients if isinstance(job.load, ClosedLoop) else OPEN_CONNECTIONS
    for _ in range(connections):
        engine.connect()
        time.sleep(min(RAMP_S, MOST_RAMP_S / connections))
    images = drawn_images(len(requests), 1 << 16, np.random.default_rng([job.seed, 1]))
    begin_s = now_s() + START_S
    zero_s = begin_s + job.load.warm_up_s
    cores = affinity()
    before = snapshot(cores)
    if isinstance(job.load, ClosedLoop):
        due, following = closed(job.load, begin_s, images)
    else:
        due, following = opened(job.load, begin_s, images, job.seed), nothing
    records = engine.run(due, following, zero_s)
    activity = per_core(snapshot(cores) - before, len(cores))
    records.save(folder / RECORDS)
    seen = {
        "activity": asdict(activity),
        "gone": engine.gone,
        "stopped_s": engine.stopped_s,
        "phases_ms": phases_ms(engine.bodies),
    }
    (folder / SEEN).write_text(json.dumps(seen), encoding="utf-8")


def per_core(activity: Activity, cores: int) -> Activity:
    """With the time that the hypervisor took as the mean of the cores: server and generator may run on any of them."""
    return replace(activity, steal_s=activity.steal_s / max(1, cores))


def closed(load: ClosedLoop, begin_s: float, images: NDArray[np.int64]) -> tuple[list[tuple[float, int]], Following]:
    """First requests of all clients, and the rule that each asks again when it is answered."""
    end_s = begin_s + load.warm_up_s + load.seconds
    order = count(load.clients)

    def following(done_s: float, ok: bool) -> tuple[float, int] | None:
        at_s = done_s if ok else done_s + AFTER_FAILURE_S
        return None if at_s >= end_s else (at_s, int(images[next(order) % len(images)]))

    return [(begin_s, int(images[client % len(images)])) for client in range(load.clients)], following


def opened(load: OpenLoop, begin_s: float, images: NDArray[np.int64], seed: int) -> list[tuple[float, int]]:
    """Drawn times and images of all requests."""
    rng = np.random.default_rng([seed, 0])
    times = begin_s + poisson_arrivals_s(load.rate_per_s, load.warm_up_s + load.seconds, rng)
    return [(float(time_s), int(images[k % len(images)])) for k, time_s in enumerate(times)]


def write_requests(path: Path, requests: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """Byte strings of any length as arrays: joined, and where each ends."""
    arrays: dict[str, Any] = {}
    for name, texts in (("requests", requests), ("expected", expected)):
        arrays[name] = np.frombuffer(b"".join(texts), np.uint8)
        arrays[f"{name}_ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    np.savez(path, **arrays)


def read_requests(path: Path) -> tuple[list[bytes], list[bytes]]:
    with np.load(path, allow_pickle=False) as arrays:
        found = []
        for name in ("requests", "expected"):
            joined, ends = arrays[name].tobytes(), arrays[f"{name}_ends"].tolist()
            found.append([joined[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    return found[0], found[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
