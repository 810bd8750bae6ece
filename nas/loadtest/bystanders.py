"""How much of the machine was used by programs that have nothing to do with a load test."""

import time
from contextlib import suppress

import psutil

from nas.measure.host import affinity


class Bystanders:
    """Processor time of the machine, of this process and its children (the generator), and of the server's processes.

    Made before a trial and asked after it.
    """

    def __init__(self, server_pid: int | None) -> None:
        """`server_pid`: the root of the server's processes; None where it is not known."""
        self._server_pid = server_pid
        self._cores = affinity()
        self._begin_s = time.monotonic()
        self._machine_s = _machine_s(self._cores)
        self._known_s = self._known()

    def share(self) -> float | None:
        """Part of the cores, over the time since it was made, that others used; None without a known server."""
        if self._server_pid is None or not self._cores:
            return None
        wall_s = time.monotonic() - self._begin_s
        others_s = (_machine_s(self._cores) - self._machine_s) - (self._known() - self._known_s)
        return max(0.0, others_s / (wall_s * len(self._cores)))

    def _known(self) -> float:
        return _trees_s({None, self._server_pid})


def _machine_s(cores: tuple[int, ...]) -> float:
    """Time that the cores have computed for anyone. Without interrupts: those are the load's own packets."""
    by_core = psutil.cpu_times(percpu=True)
    busy = [t for number, t in enumerate(by_core) if number in cores]
    return sum(t.user + t.nice + t.system for t in busy)


def _trees_s(roots: set[int | None]) -> float:
    """Processor time of processes (None: this one) and all that they started, those that have ended included."""
    by_pid: dict[int, float] = {}
    for pid in roots:
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):  # one that ends meanwhile is told of by its parent
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    by_pid[process.pid] = times.user + times.system + times.children_user + times.children_system
    return sum(by_pid.values())
