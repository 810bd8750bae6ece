"""One replica of a server: `python -m nas.serving.worker FD`, started and watched by `nas.serving.supervisor`.

It loads and checks the model before it listens, so whoever can connect is answered. Over the socket FD it is told what
to serve and gives a sign of life several times a second; when that connection ends, so does the replica.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from nas.errors import UserError
from nas.serving.app import Health, create_app
from nas.serving.engine import Engine
from nas.serving.listening import BACKLOG, listen, take_nobody_new
from nas.serving.metrics import Metrics
from nas.serving.model import ServedModel
from nas.serving.spec import ReplicaSpec, connect, line

BEAT_S = 0.25
"""Time between two signs of life."""
KEEP_ALIVE_S = 75
"""Seconds after which an idle connection is closed, as long as nginx keeps one."""
SWITCH_S = 0.0005
"""Longest time that a thread keeps the interpreter from the others. With Python's 5 ms the event loop waits behind
decoding and inference for longer than many a network takes."""
SETTLE_S = 0.1
"""In which a connection that is being made is made, and one that was accepted last sends what it has."""


class Replica(uvicorn.Server):
    """A uvicorn server that ends without losing a request, when it is told to."""

    def __init__(self, engine: Engine, listening: socket.socket) -> None:
        self.health, self.numbers = Health(), Metrics()
        self._engine, self._listening = engine, listening
        settings = engine.settings
        super().__init__(
            uvicorn.Config(
                create_app(engine, self.health, self.numbers, lambda: len(self.server_state.connections) == 1),
                loop="uvloop", http="httptools", ws="none", lifespan="off", log_level="warning", access_log=False,
                server_header=False, backlog=BACKLOG, timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=round(settings.body_s + settings.deadline_ms / 1e3 + settings.hang_s),
            )
        )  # fmt: skip

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `drain` is what a signal asks for

    async def drain(self) -> None:
        """Say that this is the end, go on for a while, and end: clients whose connections are closed after an answer
        look for another server, and those that ask whether it is ready stop coming."""
        if self.health.draining:
            return
        self.health.draining = True
        self.config.headers.append(("connection", "close"))
        self.config.encoded_headers.append((b"connection", b"close"))  # what is sent from the next second on
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        await asyncio.sleep(self._engine.settings.drain_s)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take in all who are connected to the listening socket before it is closed: they would be reset."""
        loop = asyncio.get_running_loop()
        take_nobody_new(self._listening)
        await asyncio.sleep(SETTLE_S)  # whose connection is being made
        accepted = list(_accept_all(self._listening))
        for server in self.servers:
            server.close()
        for connection in accepted:
            await loop.connect_accepted_socket(self._protocol, connection)
        await asyncio.sleep(SETTLE_S)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return protocol


async def serve(spec: ReplicaSpec, end: socket.socket) -> None:
    """Serve until a signal, or the end of the connection to the supervisor."""
    reader, writer = await connect(end)
    try:
        model = ServedModel.open(
            spec.server.folder, name=spec.server.name, threads=spec.server.settings.threads, files=spec.files
        )
        engine = Engine(model, spec.server.settings)
    except Exception as error:  # noqa: BLE001  # whatever it is, another start would fail in the same way
        if not isinstance(error, UserError):
            traceback.print_exc()  # where it was
            error = UserError(
                f"'{spec.server.folder}' cannot be served: {type(error).__name__}: {error}",
                "run `nas export --verify` on it, or export the network again",
            )
        writer.write(line({"failed": str(error), "hint": error.hint}))
        await writer.drain()
        return
    listening = listen(spec.server.host, spec.server.port)
    replica = Replica(engine, listening)
    loop = asyncio.get_running_loop()
    draining: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGTERM, lambda: draining.add(loop.create_task(replica.drain())))
    beating = loop.create_task(_beat(replica, engine, writer))
    alone = loop.create_task(_end_when_alone(replica, reader))
    await replica.serve(sockets=[listening])
    for task in (beating, alone, *draining):
        task.cancel()
    await asyncio.to_thread(engine.close)


async def _beat(replica: Replica, engine: Engine, writer: asyncio.StreamWriter) -> None:
    """Signs of life from the event loop, as long as network and decoders return."""
    while not replica.started:
        await asyncio.sleep(0.01)
    replica.numbers.replicas.set(1)
    with contextlib.suppress(ConnectionError):
        while True:
            replica.numbers.memory.set(_resident_bytes())
            if not engine.stuck:
                writer.write(line({"serving": True}))
                await writer.drain()
            await asyncio.sleep(BEAT_S)


async def _end_when_alone(replica: Replica, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()
    replica.should_exit = True  # nobody would replace or end this process any more


def _accept_all(listening: socket.socket) -> Iterator[socket.socket]:
    with contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = listening.accept()
            connection.setblocking(False)
            yield connection


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _read_line(end: socket.socket) -> bytes:
    """The first line, byte by byte: what follows belongs to whoever reads next."""
    found = bytearray()
    while not found.endswith(b"\n"):
        byte = end.recv(1)
        if not byte:
            raise SystemExit(1)
        found += byte
    return bytes(found)


def main(arguments: list[str]) -> None:
    import json

    import uvloop

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_S)
    end = socket.socket(fileno=int(arguments[0]))
    document: dict[str, Any] = json.loads(_read_line(end))
    spec = ReplicaSpec.from_json(document)
    if spec.cores:
        os.sched_setaffinity(0, spec.cores)  # before the libraries count the cores they may use
    uvloop.run(serve(spec, end))


if __name__ == "__main__":
    main(sys.argv[1:])
