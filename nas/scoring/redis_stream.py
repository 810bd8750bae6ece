"""Images from a Redis stream, results into another one: each image has one result, whoever dies when.

An entry has the fields `id` and `image` (the bytes of a file). Its result, the note that its id is done and the end of
the entry are one step in the server (`nas.scoring.redis_scripts.FINISH`); what was delivered to a worker that died is
delivered to another one, at most `DELIVERIES` times.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nas.errors import UserError
from nas.progress import Progress
from nas.scoring.redis_scripts import BURY, FINISH, FORGET, LEAVE, SEND, TAKE_OVER
from nas.scoring.redis_server import PATIENCE_S, Server, StreamUrl, parse_url
from nas.scoring.rows import Row
from nas.scoring.scorer import Item

if TYPE_CHECKING:
    from redis import Redis

GROUP = "nas"
DELIVERIES = 3
"""Deliveries of an entry, all of which ended with a worker's death, before it is buried."""
IDLE_S = 10.0
"""A worker that has not cared for its entries for so long is dead."""
CARE_S = 2.0
"""Seconds between two looks after what is under way here, and for what others have left."""
LOOKED_AT = 64
"""Most entries that are looked at then."""
FORGET_S = 60.0
REMEMBER_S = 7 * 24 * 3600
"""Seconds for which the server knows that an id was sent or scored."""
MOST_WAITING = 10_000
"""Producers wait where a stream has so many entries."""
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class StreamItem(Item):
    """An image, and the stream's name for its entry."""

    entry: str = ""


class RedisSource:
    """One worker's view of a stream; see `nas.scoring.streaming.Source`. Opened by `open_stream`."""

    def __init__(self, server: Server, results: str) -> None:
        self._server = server
        stream = server.url.stream
        self._stream, self._results = stream, results
        self._done, self._sent, self._dead = f"{stream}.done", f"{stream}.sent", f"{stream}.dead"
        self._consumer = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._mine: set[str] = set()
        """Entries that are under way here."""
        self._cared = self._looked = self._forgot = float("-inf")
        self.buried = 0
        """Entries that were given up."""
        self._make_group()

    def take(self, most: int) -> list[StreamItem]:
        taken = self._taken_over() or self._new(most)
        items = [item for entry, fields in taken if (item := self._item(entry, fields)) is not None]
        self._mine.update(item.entry for item in items)
        return items

    def finish(self, items: Sequence[StreamItem], rows: Sequence[Row]) -> None:
        def all_of_them(client: "Redis") -> None:
            with client.pipeline(transaction=False) as pipeline:
                for item, row in zip(items, rows, strict=True):
                    keys = self._stream, self._done, self._results
                    pipeline.eval(FINISH, len(keys), *keys, GROUP, item.entry, item.name, *_fields(row))
                pipeline.execute()

        self._server.ask(all_of_them)
        self._mine.difference_update(item.entry for item in items)

    def empty(self) -> bool:
        """No entry is left, at whatever worker."""
        return not self._server.ask(lambda client: client.xlen(self._stream))

    def look_after(self) -> None:
        now = time.monotonic()
        if self._mine and now - self._cared >= CARE_S:
            self._cared = now
            entries: list[Any] = sorted(self._mine)
            self._server.ask(lambda client: client.xclaim(self._stream, GROUP, self._consumer, 0, entries, justid=True))
        if now - self._forgot >= FORGET_S:
            self._forgot = now
            self._server.ask(lambda client: client.eval(FORGET, 2, self._sent, self._done, REMEMBER_S))

    def leave(self) -> None:
        """Be no consumer any more."""
        self._server.ask(lambda client: client.eval(LEAVE, 1, self._stream, GROUP, self._consumer))

    def _make_group(self) -> None:
        from redis.exceptions import ResponseError

        def make(client: "Redis") -> None:
            try:
                client.xgroup_create(self._stream, GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):  # else it is there already
                    raise

        self._server.ask(make)

    def _new(self, most: int) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        found: Any = self._server.ask(
            lambda client: client.xreadgroup(GROUP, self._consumer, {self._stream: ">"}, count=most)
        )
        if isinstance(found, dict):  # newer protocol: {stream: [entries]}
            found = list(found.items())
        return [entry for _, entries in found or () for entry in _flat(entries)]

    def _taken_over(self) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        """At most one entry that a dead worker had."""
        if time.monotonic() - self._looked < CARE_S:
            return []
        arguments = GROUP, self._consumer, int(1e3 * IDLE_S), LOOKED_AT, DELIVERIES
        found: Any = self._server.ask(
            lambda client: client.eval(TAKE_OVER, 2, self._stream, self._dead, *map(str, arguments))
        )
        buried, taken = found
        self.buried += buried
        if not taken:
            self._looked = time.monotonic()
        return [(entry, dict(zip(fields[::2], fields[1::2], strict=True))) for entry, fields in taken]

    def _item(self, entry: bytes, fields: Mapping[bytes, bytes]) -> StreamItem | None:
        name = entry.decode()
        missing = [field for field in (b"id", b"image") if field not in fields]
        if missing:
            reason = f"it has no field {missing[0].decode()!r}"
            self._server.ask(lambda client: client.eval(BURY, 2, self._stream, self._dead, GROUP, name, reason))
            self.buried += 1
            return None
        return StreamItem(fields[b"id"].decode("utf-8", "backslashreplace"), fields[b"image"], entry=name)


@contextmanager
def open_stream(
    address: str, results: str | None = None, *, may_lose: bool = False, progress: Progress
) -> Iterator[RedisSource]:
    """This process as one more worker of a stream.

    Args:
        address: see `nas.scoring.redis_server.StreamUrl`.
        results: name of the stream of results on the same server; default: `STREAM.results`.
        may_lose: accept a server that may lose entries.

    Raises:
        UserError: no such server, or one that may lose entries.
    """
    url = parse_url(address)
    results = results or f"{url.stream}.results"
    if "://" in results or results == url.stream:
        raise UserError("results go to another stream of the same server", "give its name alone: --to answers")
    server = Server(url)
    risks = server.risks()
    if risks and not may_lose:
        raise UserError(
            f"the server of {url} may lose images and results: {' and '.join(risks)}",
            "set `appendonly yes` and `maxmemory-policy noeviction`, or add --may-lose",
        )
    if not risks and server.survives_power_loss() is False:
        progress.note(
            "the server's log is written once a second: a loss of power may lose what is newest (appendfsync)"
        )
    source = RedisSource(server, results)
    yield source
    source.leave()


class Producer:
    """Puts images into a stream, each id once.

    `Producer("redis://127.0.0.1:6379/images").send("camera-1/00001", data)`
    """

    def __init__(self, address: str | StreamUrl, *, most_waiting: int = MOST_WAITING) -> None:
        """Raises as `nas.scoring.redis_server.Server`.

        Args:
            address: see `nas.scoring.redis_server.StreamUrl`.
            most_waiting: entries in the stream from which on `send` waits.
        """
        self._server = Server(address if isinstance(address, StreamUrl) else parse_url(address))
        self._most = most_waiting

    def send(self, id: str, image: bytes, *, patience_s: float = PATIENCE_S) -> bool:
        """Put an image into the stream; False where its id was sent before, which may be by this very call: so it can
        be called again after any failure.

        Raises:
            UserError: the stream stays full for `patience_s`, or the server is away for long.
        """
        stream = self._server.url.stream
        deadline = time.monotonic() + patience_s
        while True:
            sent = self._server.ask(lambda c: c.eval(SEND, 2, stream, f"{stream}.sent", id, image, str(self._most)))
            if sent != -1:
                return bool(sent)
            if time.monotonic() > deadline:
                raise UserError(
                    f"{self._server.url} has {self._most} entries that nobody scores", "start `nas predict --from`"
                )
            time.sleep(PAUSE_S)


def _fields(row: Row) -> list[str]:
    """Fields and values of a result: what most readers want, and all of the row as JSON."""
    fields = {"id": row.path, "label": row.label, "score": row.score, "error": row.error}
    known = [part for name, value in fields.items() if value is not None for part in (name, str(value))]
    return [*known, "row", json.dumps(asdict(row), allow_nan=False)]


def _flat(entries: Any) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
    """Entries as the driver gives them, in a list or, with the newer protocol, in a list of lists."""
    return [entry for part in entries for entry in (part if isinstance(part, list) else [part])]
