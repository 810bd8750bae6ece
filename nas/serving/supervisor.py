"""A server: replicas that share a port, each watched and replaced when it dies or gives no sign of life."""

import asyncio
import json
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nas.bundles.receipt import Receipt
from nas.errors import UserError
from nas.serving.checks import usable_cores
from nas.serving.listening import reserve, url
from nas.serving.metrics_folder import forget_process
from nas.serving.settings import replica_cores
from nas.serving.sizes import prepare_sizes
from nas.serving.spec import ReplicaSpec, ServerSpec, command, connect, line

WORKER = "nas.serving.worker"
START_S = 120.0
"""Seconds that a replica may take to load its network."""
STARTS = 2
"""Of a replica that may end or be silent before it serves, as long as the server was never ready."""
PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""Pause before a replica is started again; it doubles as long as they end before they have served for `STEADY_S`."""
STEADY_S = 1.0
"""One that served for longer was ended by something else than its start, and is needed again at once."""
ENDING_S = 0.2
"""In which a process whose connection has ended is gone, too."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    url: str
    host: str
    port: int
    name: str
    """What clients call the model."""


class Supervisor:
    """Keeps the replicas of one server running, from `run` until `stop`."""

    def __init__(
        self, spec: ServerSpec, cores: list[tuple[int, ...]], files: Mapping[int, Path], metrics: Path
    ) -> None:
        """`cores`: of each replica; `metrics`: an empty folder."""
        self._spec, self._cores, self._files, self._metrics = spec, cores, files, metrics
        self._stopping = asyncio.Event()
        self._ready: dict[int, float] = {}
        """Replica -> when its latest process began to serve, as `time.monotonic` counts."""
        self._all_ready = asyncio.Event()
        self._processes: set[asyncio.subprocess.Process] = set()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve; `on_ready` is called once, when all replicas answer.

        Raises:
            UserError: the first replicas cannot serve the model, or do not come to it.
        """
        slots = [asyncio.create_task(self._keep(slot)) for slot in range(len(self._cores))]
        telling = asyncio.create_task(self._tell(on_ready))
        try:
            await asyncio.gather(*slots)
        finally:
            telling.cancel()
            self.stop()
            for process in list(self._processes):
                _signal(process, signal.SIGKILL)
            await asyncio.gather(*slots, return_exceptions=True)

    def stop(self) -> None:
        """Have all replicas end: they answer what they have, and for a while what still comes."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for process in self._processes:
            _signal(process, signal.SIGTERM)

    async def _tell(self, on_ready: Callable[[], None]) -> None:
        await self._all_ready.wait()
        on_ready()

    async def _keep(self, slot: int) -> None:
        pause_s, failed_starts = PAUSE_S, 0
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = await self._one_life(slot)
            if self._stopping.is_set():
                return
            served_since = self._ready.get(slot, 0.0)
            failed_starts = failed_starts + 1 if served_since < began else 0
            if failed_starts >= STARTS and not self._all_ready.is_set():
                raise UserError(
                    f"replica {slot} {reason} before it served, {STARTS} times in a row",
                    "see what it wrote above; a smaller --batch or fewer --replicas need less time and memory",
                )
            steady = served_since > began and time.monotonic() - served_since > STEADY_S
            pause_s = PAUSE_S if steady else min(2 * pause_s, LONGEST_PAUSE_S)
            _log.warning("replica %d %s and is replaced", slot, reason)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _one_life(self, slot: int) -> str:
        """Start a replica and watch it until it has ended; why it did."""
        ours, theirs = socket.socketpair()
        arguments, options = command(WORKER, theirs, self._metrics)
        process = await asyncio.create_subprocess_exec(*arguments, stdin=asyncio.subprocess.DEVNULL, **options)
        theirs.close()
        self._processes.add(process)
        if self._stopping.is_set():  # while it was started: nobody has told it
            _signal(process, signal.SIGTERM)
        reader, writer = await connect(ours)
        try:
            spec = ReplicaSpec(server=self._spec, cores=self._cores[slot], files=self._files)
            writer.write(line(spec.to_json()))
            reason = await self._watch(slot, reader)
            if self._stopping.is_set():
                await self._let_end(process)
            return f"{reason}{await _how(process)}"
        finally:
            _signal(process, signal.SIGKILL)
            await process.wait()
            writer.close()
            self._processes.discard(process)
            forget_process(self._metrics, process.pid)

    async def _watch(self, slot: int, reader: asyncio.StreamReader) -> str:
        """Wait for the end of a replica, or for its silence; what it was."""
        patience_s, serving = START_S, False
        while True:
            try:
                said = await asyncio.wait_for(reader.readline(), patience_s)
            except TimeoutError:
                return f"gave no sign of life for {patience_s:g} s"
            except ConnectionError:
                said = b""
            if not said:
                return "ended"
            message = json.loads(said)
            if "failed" in message:
                if not self._all_ready.is_set():
                    raise UserError(message["failed"], message["hint"])
                _log.error("%s", message["failed"])
            else:
                if not serving:
                    serving, self._ready[slot] = True, time.monotonic()
                patience_s = self._spec.settings.hang_s
                if len(self._ready) == len(self._cores):
                    self._all_ready.set()

    async def _let_end(self, process: asyncio.subprocess.Process) -> None:
        settings = self._spec.settings
        most_s = settings.drain_s + settings.body_s + settings.deadline_ms / 1e3 + 2 * settings.hang_s
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), most_s)


async def serve(spec: ServerSpec, receipt: Receipt, on_ready: Callable[[Running, Callable[[], None]], None]) -> None:
    """Serve a checked bundle until a SIGTERM or SIGINT, or until somebody calls what `on_ready` is given.

    Raises:
        UserError: too few cores, a port that is taken, or a model that does not answer its sample.
    """
    cores = replica_cores(spec.settings, usable_cores())
    with reserve(spec.host, spec.port) as reserved, tempfile.TemporaryDirectory(prefix="nas-serve-") as scratch:
        port = int(reserved.getsockname()[1])
        metrics, sizes = Path(scratch, "metrics"), Path(scratch, "sizes")
        metrics.mkdir()
        sizes.mkdir()
        files = prepare_sizes(spec.folder, receipt, spec.settings.batch, sizes)
        supervisor = Supervisor(replace(spec, port=port), cores, files, metrics)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        running = Running(url(spec.host, port), spec.host, port, spec.name)
        await supervisor.run(lambda: on_ready(running, supervisor.stop))


async def _how(process: asyncio.subprocess.Process) -> str:
    """How a process has ended, in words; empty where it has not."""
    with suppress(TimeoutError):
        code = await asyncio.wait_for(process.wait(), ENDING_S)
        return f" by signal {-code}" if code < 0 else f" with code {code}"
    return ""


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
