"""A Redis server, as a URL names it: asked patiently, judged by what it can lose, and never shown with its password."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from nas.errors import MissingDependencyError, UserError

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")
PASSWORD_VARIABLE = "REDISCLI_AUTH"
"""Environment variable with the password, as of `redis-cli`, where the URL has none."""
PATIENCE_S = 120.0
"""Longest time for which a server that had answered may be away."""
PAUSE_S = 0.2
"""Seconds between two attempts."""
ANSWER_S = 30.0
"""Longest time for one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUrl:
    """`redis://[USER[:PASSWORD]@]HOST[:PORT]/STREAM[?db=N]`, or `rediss://` for an encrypted connection."""

    host: str
    port: int
    stream: str
    user: str | None
    password: str | None = field(repr=False)
    db: int
    encrypted: bool

    def __str__(self) -> str:
        """Without the password."""
        user = f"{self.user}@" if self.user else ""
        database = f"?db={self.db}" if self.db else ""
        return f"redis{'s' if self.encrypted else ''}://{user}{self.host}:{self.port}/{self.stream}{database}"


def parse_url(text: str) -> StreamUrl:
    """Raises `UserError`, which does not show `text`: it may hold a password."""
    hint = "write redis://HOST:6379/STREAM"
    try:
        parts = urlsplit(text)
        port = parts.port or 6379
        db = int(parse_qs(parts.query).get("db", ["0"])[0])
    except ValueError:
        raise UserError("the address of the stream is no URL", hint) from None
    stream = unquote(parts.path.strip("/"))
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise UserError(f"the address of the stream begins with {parts.scheme or 'no protocol'!r}", hint)
    if not stream:
        raise UserError(f"the address of the server at {parts.hostname}:{port} names no stream", hint)
    return StreamUrl(
        host=parts.hostname,
        port=port,
        stream=stream,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else os.environ.get(PASSWORD_VARIABLE),
        db=db,
        encrypted=parts.scheme == "rediss",
    )


class Server:
    """A connection that comes back."""

    def __init__(self, url: StreamUrl) -> None:
        """Raises `UserError` where nobody answers or we are refused, `MissingDependencyError` without the driver."""
        try:
            import redis
        except ImportError as error:
            raise MissingDependencyError("the driver of Redis", "pip install 'hardware-nas[redis]'") from error
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.url = url
        self._errors = redis.exceptions
        self.client: Redis = redis.Redis(
            host=url.host, port=url.port, db=url.db, username=url.user, password=url.password, ssl=url.encrypted,
            socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0),
        )  # fmt: skip
        try:
            self.client.ping()
        except (redis.RedisError, OSError) as error:
            raise UserError(
                f"no Redis server answers at {url}: {error}", "start one, or correct address and password"
            ) from error

    def ask(self, call: Callable[["Redis"], T]) -> T:
        """The result of `call`, which is made again when the server was away meanwhile: it has to bear that.

        Raises:
            UserError: the server is away for too long, has no room, or refuses.
        """
        errors, away_since = self._errors, None
        while True:
            try:
                return call(self.client)
            except errors.OutOfMemoryError as error:
                raise UserError(f"the server of {self.url} has no memory left", "raise its maxmemory") from error
            except (errors.ConnectionError, errors.TimeoutError) as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > PATIENCE_S:
                    raise UserError(
                        f"the server of {self.url} does not answer any more: {error}",
                        "start it again; the same command then goes on",
                    ) from error
                time.sleep(PAUSE_S)
            except errors.ResponseError as error:
                raise UserError(
                    f"the server of {self.url} refuses: {error}", "it has to be Redis 6.2 or newer, with streams"
                ) from error

    def risks(self) -> list[str]:
        """Why the server may lose what it has answered for, in words; empty where it does not."""
        info: dict[str, Any] = self.ask(lambda client: client.info())
        found = []
        if not info.get("aof_enabled"):
            found.append("it writes no log (appendonly is no)")
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            found.append(f"it throws keys away when memory is short (maxmemory-policy is {policy})")
        return found

    def survives_power_loss(self) -> bool | None:
        """Whether its log is synchronised with the disk before it answers; None where it does not tell."""
        try:
            found: dict[Any, Any] = self.client.config_get("appendfsync")
        except self._errors.RedisError:
            return None
        return None if not found else "always" in (value for value in found.values())
