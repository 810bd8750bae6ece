"""The parts of a job as tasks of a Ray cluster, whose machines all see the images, the bundle and the output's folder.

Each task runs in a supervised process of its own beside Ray's, as on one machine: so a fatal image is found out here,
too, and what Ray repeats is what machines do wrong. A part that is written twice is written with the same bytes.
"""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nas.errors import UserError
from nas.executors.ray_cluster import connected, nodes_of
from nas.executors.ray_tasks import LOOK_S, RETRIES
from nas.files.writing import sha256_of
from nas.networks.find import RECEIPT
from nas.scoring.crew import Crew
from nas.scoring.messages import Scored, Setup, Task

AHEAD = 2
"""Tasks that are submitted for each core: the next one is there when a core is free."""


def run_on_cluster(address: str, bundle: Path, tasks: Iterable[Task], *, top: int) -> Iterator[Scored]:
    """Score all tasks, each on one core of some machine; yields them as they end.

    Args:
        address: see `nas.executors.ray_cluster.connected`.

    Raises:
        UserError: no cluster, one without cores, or a machine that cannot score.
    """
    with connected(address) as ray:
        cores = sum(node.cpus for node in nodes_of(ray))
        if not cores:
            raise UserError("no machine of the Ray cluster offers cores", "start them with `ray start --num-cpus N`")
        receipt = sha256_of(bundle / RECEIPT)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(score_here)
        waiting = iter(tasks)
        under_way: set[Any] = set()
        try:
            while True:
                while len(under_way) < AHEAD * cores and (task := next(waiting, None)) is not None:
                    under_way.add(remote.remote(str(bundle.absolute()), receipt, top, task))
                if not under_way:
                    return
                ready, _ = ray.wait(list(under_way), timeout=LOOK_S)
                for reference in ready:
                    under_way.discard(reference)
                    yield _result(ray, reference)
        finally:
            for reference in under_way:
                ray.cancel(reference, force=True)


def score_here(bundle: str, receipt: str, top: int, task: Task) -> Scored:
    """The Ray task: one part, scored on the machine it runs on.

    Raises `UserError` where the receipt of the bundle has another checksum here than `receipt`.
    """
    crew = _crew(bundle, receipt, top)
    crew.submit(task)
    while True:
        for done in crew.wait():
            return done


@functools.lru_cache(maxsize=1)
def _crew(bundle: str, receipt: str, top: int) -> Crew:
    """The worker of this Ray process, which ends with it. Every machine compares the bundle with its checksums."""
    found = Path(bundle) / RECEIPT
    if not found.is_file() or sha256_of(found) != receipt:
        raise UserError(f"'{bundle}' is no bundle here, or another one", "have every machine see the same files")
    return Crew([Setup(bundle=Path(bundle), check=True, top=top, heartbeat=Path())]).__enter__()


def _result(ray: Any, reference: Any) -> Scored:
    from ray.exceptions import RayError, RayTaskError

    try:
        result: Scored = ray.get(reference)
    except RayTaskError as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(
            f"a machine of the Ray cluster cannot score images: {last}",
            "bundle, images and output have to be seen by each machine under one path, with the same program installed",
        ) from error
    except RayError as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"a part was lost {RETRIES + 1} times with its machine: {first}", "look after it") from error
    return result
