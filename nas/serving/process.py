"""A server in processes of its own, for programs and tests that need one for a while."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nas.errors import UserError
from nas.serving.checks import checked_bundle, served_name, usual_settings
from nas.serving.settings import ServingSettings
from nas.serving.spec import ServerSpec, command, connect, line
from nas.serving.supervisor import Running, serve

ENDED_S = 60.0
"""Seconds after which a server that was told to end is killed."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    url: str
    """`http://127.0.0.1:8000`"""
    pid: int
    """Of the process that watches the replicas; SIGTERM to it ends them all."""
    name: str
    """What clients call the model."""

    def replicas(self) -> list[int]:
        """Process numbers of the replicas that are there now."""
        import psutil

        return [child.pid for child in psutil.Process(self.pid).children()]


@contextmanager
def running(
    bundle: str | Path,
    settings: ServingSettings | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    name: str | None = None,
) -> Iterator[Server]:
    """Serve a bundle as long as the block runs: all replicas answer from its start.

    Args:
        bundle: its folder, or `RUN#k`.
        settings: default: those that suit the bundle on this host.
        host: address to listen on.
        port: 0: any free one.
        name: what clients call the model; default: the name of the bundle's folder.

    Raises:
        UserError: a bundle that cannot be served, a server that ends before it answers, too few cores, or a port that
            is taken.
    """
    folder, receipt = checked_bundle(bundle)
    spec = ServerSpec(
        folder=folder, name=name or served_name(folder), host=host, port=port,
        settings=settings or usual_settings(receipt),
    )  # fmt: skip
    ours, theirs = socket.socketpair()
    arguments, options = command(__name__, theirs)
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, **options)
    theirs.close()
    try:
        with ours, ours.makefile("rb") as answers:
            ours.sendall(line(spec.to_json()))
            said = answers.readline()
            if not said:
                raise UserError(
                    f"the server ended with code {process.wait()} before it answered",
                    "see what it wrote; a smaller batch or fewer replicas need less memory",
                )
            message = json.loads(said)
            if "failed" in message:
                raise UserError(message["failed"], message["hint"])
            yield Server(message["url"], process.pid, spec.name)
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(ENDED_S)  # the connection has ended, so it is ending
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _serve(end: socket.socket) -> None:
    """The server's first process: serve what the first line says, until the connection ends."""
    reader, writer = await connect(end)
    said = await reader.readline()
    if not said:
        return
    spec = ServerSpec.from_json(json.loads(said))
    tasks = []

    def on_ready(ready: Running, stop: "Callable[[], None]") -> None:
        writer.write(line({"url": ready.url}))
        tasks.append(asyncio.ensure_future(_stop_when_alone(reader, stop)))

    try:
        _, receipt = checked_bundle(spec.folder)
        await serve(spec, receipt, on_ready)
    except UserError as error:
        writer.write(line({"failed": str(error), "hint": error.hint}))
        await writer.drain()
    for task in tasks:
        task.cancel()


async def _stop_when_alone(reader: asyncio.StreamReader, stop: "Callable[[], None]") -> None:
    await reader.read()
    stop()


if __name__ == "__main__":
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
