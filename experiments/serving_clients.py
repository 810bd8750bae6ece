"""Clients of a server for measurements: a closed loop over plain sockets that costs as little as it can.

Each client sends its next request when the last answer is there, over one connection as long as that lives.
"""

import asyncio
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

END = b"\r\n\r\n"


@dataclass(slots=True)
class Loop:
    """What all clients of a closed loop saw."""

    seconds: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    """Status, or the name of the error of a request that had no answer -> how many."""
    accepted_ms: list[float] = field(default_factory=list)
    """Latencies of answers with status 200."""
    cpu_s: float = 0.0
    """CPU time of the clients."""
    refused_connections: int = 0
    bodies: list[bytes] = field(default_factory=list)
    """Answers, where they were to be kept."""

    @property
    def rate(self) -> float:
        """Answers with status 200 per second."""
        return len(self.accepted_ms) / self.seconds

    @property
    def lost(self) -> int:
        """Requests without an answer."""
        return sum(count for code, count in self.codes.items() if not code.isdigit())

    def percentile_ms(self, percentile: float) -> float:
        return float(np.percentile(self.accepted_ms, percentile)) if self.accepted_ms else float("nan")


def request(path: str, body: bytes, *headers: str) -> bytes:
    """A whole POST, ready to be sent."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + END + body


async def closed_loop(
    url: str,
    requests: Sequence[bytes],
    *,
    clients: int,
    seconds: float = float("inf"),
    most: int | None = None,
    pause_s: float = 0.0,
    keep: bool = False,
    leave_when_gone: bool = False,
    during: Callable[[Loop], "asyncio.Future[None] | None"] | None = None,
) -> Loop:
    """Send `requests` in turn for so long, or until `most` of them were sent.

    Args:
        url: of the server.
        requests: as `request` makes them.
        clients: at once.
        seconds: how long.
        most: requests in all.
        pause_s: of a client before its first request and after each answer, on average; drawn by chance (exponential),
            so that many clients come as if each were another.
        keep: the bodies of answers, in order of the requests (one client alone).
        leave_when_gone: a client ends when nobody listens any more.
        during: started beside the clients; what it returns is awaited at the end.
    """
    seen, numbers = Loop(), iter(range(most if most is not None else 1 << 62))
    start, cpu = time.perf_counter(), _cpu_s()
    beside = during(seen) if during is not None else None
    address, rng = urlsplit(url), random.Random(0)

    async def client() -> None:
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        if pause_s:
            await asyncio.sleep(rng.expovariate(1 / pause_s))
        for number in numbers:
            if time.perf_counter() - start > seconds:
                break
            try:
                if streams is None or streams[0].at_eof():  # it was closed while nothing was asked
                    streams = await asyncio.open_connection(address.hostname, address.port)
            except OSError:
                seen.refused_connections += 1
                if leave_when_gone:
                    return
                await asyncio.sleep(0.01)
                continue
            began = time.perf_counter()
            try:
                code, body, closes = await _one(*streams, requests[number % len(requests)])
            except (OSError, EOFError) as error:
                seen.codes[type(error).__name__] += 1
                streams[1].close()
                streams = None
                continue
            seen.codes[code] += 1
            if code == "200":
                seen.accepted_ms.append(1e3 * (time.perf_counter() - began))
            if keep:
                seen.bodies.append(body)
            if closes:
                streams[1].close()
                streams = None
            if pause_s:
                await asyncio.sleep(rng.expovariate(1 / pause_s))
        if streams is not None:
            streams[1].close()

    await asyncio.gather(*(client() for _ in range(clients)))
    seen.seconds, seen.cpu_s = time.perf_counter() - start, _cpu_s() - cpu
    if beside is not None:
        await beside
    return seen


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, content: bytes) -> tuple[str, bytes, bool]:
    """Status, body, and whether the connection is closed behind it."""
    writer.write(content)
    head = (await reader.readuntil(END)).lower()
    length = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    return head[9:12].decode(), body, b"connection: close" in head


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
