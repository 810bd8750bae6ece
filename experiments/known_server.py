"""Servers of which it is known exactly what they do, in processes of their own: no network computes in them."""

import asyncio
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nas.loadtest.timer import Timer, now_s


@dataclass(frozen=True)
class Known:
    """A server that runs."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def known_server(**behaviour: object) -> Iterator[Known]:
    """A server that behaves as the fields of `Behaviour` say, on a free port of 127.0.0.1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.known_server", json.dumps(behaviour)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Known(int(process.stdout.readline()), process.pid)
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Behaviour:
    """What it does with requests, which it takes one after the other in the order of their coming."""

    service_s: float = 0.0
    """Every request takes exactly so long, one after the other."""
    stall_every_s: float = 0.0
    """At times k * `stall_every_s` since the first request it stops for `stall_s`, and answers nothing."""
    stall_s: float = 0.0
    label: str = "cat"
    wrong_every: int = 0
    """Every so many requests it says `dog`."""
    busy_every: int = 0
    """Every so many requests it answers 503."""
    lost_every: int = 0
    """Every so many requests it never answers."""
    close_every: int = 0
    """Every so many answers it closes the connection, as it says."""
    body: str | None = None
    """What it answers instead of JSON."""
    raw: str | None = None
    """What it sends instead of HTTP."""
    exit_after: int = 0
    """After so many answers it is gone."""


class _Server:
    """One queue and one server in it. When an answer leaves is computed, not worked for: a busy machine delays the
    sending of a single answer, and never those behind it."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.timer = Timer()
        self.leaving: deque[tuple[float, asyncio.StreamWriter]] = deque()
        self.first_s = self.free_s = 0.0
        self.count = 0

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lines[0].split(b":")[1]) if lines else 0)
                self.asked(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def asked(self, writer: asyncio.StreamWriter) -> None:
        b, now = self.behaviour, now_s()
        self.first_s = self.first_s or now
        self.free_s = max(self.free_s, now) + b.service_s
        if b.stall_every_s:
            phase_s = (self.free_s - self.first_s) % b.stall_every_s
            if phase_s >= b.stall_every_s - b.stall_s:
                self.free_s += b.stall_every_s - phase_s
        self.leaving.append((self.free_s, writer))
        self.answer_due()

    def answer_due(self) -> None:
        self.timer.clear()
        while self.leaving and self.leaving[0][0] <= now_s():
            self.answer(self.leaving.popleft()[1])
        if self.leaving:
            self.timer.wake_at(self.leaving[0][0])

    def answer(self, writer: asyncio.StreamWriter) -> None:
        b = self.behaviour
        self.count += 1
        if b.lost_every and self.count % b.lost_every == 0:
            return
        label = "dog" if b.wrong_every and self.count % b.wrong_every == 0 else b.label
        document = {"label": label, "score": 0.9, "ms": {"infer": 1.0}}
        body = (b.body if b.body is not None else json.dumps(document)).encode()
        status = "503 Service Unavailable" if b.busy_every and self.count % b.busy_every == 0 else "200 OK"
        closes = b.close_every and self.count % b.close_every == 0
        ending = "Connection: close\r\n" if closes else ""
        text = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{ending}\r\n"
        writer.write(b.raw.encode() if b.raw is not None else text.encode() + body)
        if closes:
            writer.close()
        if self.count == b.exit_after:
            os._exit(0)


async def _serve(behaviour: Behaviour) -> None:
    server = _Server(behaviour)
    asyncio.get_running_loop().add_reader(server.timer.fd, server.answer_due)
    listener = await asyncio.start_server(server.connection, "127.0.0.1", 0, backlog=1000)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(Behaviour(**json.loads(sys.argv[1]))))
