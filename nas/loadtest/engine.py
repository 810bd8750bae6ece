"""The loop that sends requests at their times and takes note of the answers: one thread, one `epoll`.

As few instructions as possible lie between a time and its request, and between an answer and its time: requests are
ready as bytes, connections are open and kept, answers are read by one regular expression.
"""

import errno
import heapq
import math
import resource
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nas.loadtest.answers import Read
from nas.loadtest.records import NO_SOCKET, NONSENSE, OK, REFUSED, RESET, TIMED_OUT, WRONG, Records
from nas.loadtest.response import MalformedResponseError, Response
from nas.loadtest.timer import Timer, now_s

IDLE_S = 2.0
"""A connection that was idle for longer is not used again: the server may just be closing it (the usual limit: 5 s)."""
GIVE_UP_S = 2.0
"""After so long without anything but refused connections the server is gone."""
KEPT_BODIES = 500
"""Right answers of which the whole body is kept."""
_READ_BYTES = 1 << 18

Following = Callable[[float, bool], tuple[float, int] | None]
"""Given when a request ended and whether it was answered rightly: time and image of one more request, or None."""


class _Connection:
    """A socket, and the request on it."""

    __slots__ = ("due_s", "idle_since_s", "image", "pending", "response", "sent_s", "serial", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.serial = -1
        """Number of the request that is under way; -1: none."""
        self.pending = memoryview(b"")
        """Bytes of the request that the kernel has not taken yet."""
        self.response = Response()
        self.image, self.due_s, self.sent_s, self.idle_since_s = 0, 0.0, 0.0, 0.0


class Engine:
    """Requests to one server. Times are those of `now_s`."""

    def __init__(
        self,
        address: tuple[str, int],
        requests: Sequence[bytes],
        expected: Sequence[bytes],
        read: Read,
        timeout_s: float,
        late_s: float = math.inf,
        most_late: int | None = None,
    ) -> None:
        """`requests` and `expected`: of each image the whole request, and what `read` makes of a right answer.

        After `most_late` requests that failed or took longer than `late_s` no others are sent.
        """
        self._late_s, self._late_left = late_s, math.inf if most_late is None else float(most_late)
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        self._family: socket.AddressFamily = found[0]
        self._address: Any = found[4]
        self._requests, self._expected, self._read, self._timeout_s = requests, expected, read, timeout_s
        self._timer = Timer()
        self._epoll = select.epoll()
        self._epoll.register(self._timer.fd, select.EPOLLIN)
        self._by_fd: dict[int, _Connection] = {}
        self._idle: deque[_Connection] = deque()
        self._deadlines: deque[tuple[float, _Connection, int]] = deque()
        self._due: list[tuple[float, int]] = []
        self._following: Following = nothing
        self._count_from_s = 0.0
        self._started = 0
        self._under_way = 0
        self._refused_since_s: float | None = None
        self._rows: list[tuple[float, float, float, int, int]] = []
        self.bodies: list[bytes] = []
        self.gone = False
        """The server was not there any more, and the rest was not sent."""
        self.stopped_s: float | None = None
        """When too many had been late, since counting began; None: that was not so."""
        raise_file_limit()

    def connect(self) -> None:
        """Open one connection to keep; one that fails is noticed by the request that would have used it."""
        connection = self._open()
        if connection is not None:
            connection.idle_since_s = now_s()
            self._idle.append(connection)

    def run(self, due: Sequence[tuple[float, int]], following: Following, count_from_s: float) -> Records:
        """Send each image of `due` at its time (ascending) and whatever follows, until all are answered.

        Args:
            due: (time, image) of each request that is known beforehand.
            following: called after each end, for one more request.
            count_from_s: the zero of the times in the records; bodies are kept from then on.
        """
        self._due, self._following = list(due), following
        self._count_from_s = count_from_s
        while not self.gone:
            self._send_due()
            self._expire()
            if not self._due and not self._under_way:
                break
            self._wait()
        table = np.array(self._rows, np.float64).reshape(-1, 5)
        return Records(
            due_s=table[:, 0] - count_from_s,
            sent_s=table[:, 1] - count_from_s,
            done_s=table[:, 2] - count_from_s,
            code=table[:, 3].astype(np.int16),
            image=table[:, 4].astype(np.int32),
        )

    def close(self) -> None:
        for connection in self._by_fd.values():
            connection.socket.close()
        self._epoll.close()
        self._timer.close()

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= now_s():
            self._send(*heapq.heappop(self._due))

    def _wait(self) -> None:
        at = self._due[0][0] if self._due else np.inf
        if self._deadlines:
            at = min(at, self._deadlines[0][0])
        if at < np.inf:
            self._timer.wake_at(at)
        for fd, mask in self._epoll.poll():
            if fd == self._timer.fd:
                self._timer.clear()
            elif (connection := self._by_fd.get(fd)) is not None:  # else closed by an earlier event of this round
                self._event(connection, mask)
            self._send_due()

    def _expire(self) -> None:
        now = now_s()
        while self._deadlines:
            deadline_s, connection, serial = self._deadlines[0]
            if connection.serial != serial:
                self._deadlines.popleft()  # answered long ago
            elif deadline_s <= now:
                self._deadlines.popleft()
                self._fail(connection, TIMED_OUT)
            else:
                return

    def _open(self) -> _Connection | None:
        try:
            sock = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
                return None
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect_ex(self._address)  # what comes of it, epoll tells
        connection = _Connection(sock)
        self._by_fd[sock.fileno()] = connection
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        return connection

    def _free(self) -> _Connection | None:
        """The connection that was idle for the longest, so that all of them are used, and all workers behind them."""
        now = now_s()
        while self._idle:
            connection = self._idle.popleft()
            if connection.socket.fileno() < 0:
                continue  # the server closed it
            if now - connection.idle_since_s <= IDLE_S:
                return connection
            self._close(connection)
        return self._open()

    def _send(self, due_s: float, image: int) -> None:
        connection = self._free()
        if connection is None:
            self._rows.append((due_s, now := now_s(), now, NO_SOCKET, image))
            self._follow(now, NO_SOCKET)
            return
        connection.serial = self._started
        self._started += 1
        self._under_way += 1
        connection.image, connection.due_s = image, due_s
        connection.response = Response()
        connection.pending = memoryview(self._requests[image])
        connection.sent_s = now_s()
        self._deadlines.append((due_s + self._timeout_s, connection, connection.serial))
        self._push(connection)

    def _push(self, connection: _Connection) -> None:
        """Hand on as many bytes as the kernel takes, the rest when it takes more."""
        try:
            taken = connection.socket.send(connection.pending)
        except (BlockingIOError, InterruptedError):
            taken = 0
        except OSError as error:
            # ENOTCONN: still connecting, or refused, which is told with the next event.
            if error.errno != errno.ENOTCONN:
                self._fail(connection, _code_of(error.errno or 0))
                return
            taken = 0
        connection.pending = connection.pending[taken:]
        wanted = select.EPOLLIN | (select.EPOLLOUT if connection.pending else 0)
        self._epoll.modify(connection.socket.fileno(), wanted)

    def _event(self, connection: _Connection, mask: int) -> None:
        if mask & (select.EPOLLERR | select.EPOLLHUP) and not mask & select.EPOLLIN:
            problem = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._fail(connection, _code_of(problem))
            return
        if mask & select.EPOLLOUT and connection.pending:
            self._push(connection)
        if mask & select.EPOLLIN:
            self._receive(connection)

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(connection, _code_of(error.errno or 0))
            return
        response = connection.response
        try:
            whole = response.feed(data) if data else response.end()
        except MalformedResponseError:
            self._fail(connection, NONSENSE)
            return
        if connection.serial < 0:  # closed while idle, or it talks without having been asked
            self._close(connection)
        elif whole:
            self._answered(connection, response)
        elif not data:
            self._fail(connection, RESET)

    def _answered(self, connection: _Connection, response: Response) -> None:
        now = now_s()
        code = response.status
        if code == OK:
            answer = self._read(response.body)
            if answer is None:
                code = NONSENSE
            elif answer != self._expected[connection.image]:
                code = WRONG
            elif len(self.bodies) < KEPT_BODIES and connection.due_s >= self._count_from_s:
                self.bodies.append(response.body)
        self._refused_since_s = None
        unsent = bool(connection.pending)  # it answered before it had the whole request: no further one fits behind
        self._end(connection, now, code)
        if response.keep_alive and not unsent:
            connection.idle_since_s = now
            connection.response = Response()
            self._idle.append(connection)
        else:
            self._close(connection)
        self._follow(now, code)

    def _fail(self, connection: _Connection, code: int) -> None:
        now = now_s()
        under_way = connection.serial >= 0
        if under_way:
            self._end(connection, now, code)
        self._close(connection)
        if not under_way:
            return
        if code == REFUSED:
            self._refused_since_s = self._refused_since_s or now
            self.gone = now - self._refused_since_s > GIVE_UP_S
        else:
            self._refused_since_s = None
        self._follow(now, code)

    def _end(self, connection: _Connection, now: float, code: int) -> None:
        self._rows.append((connection.due_s, connection.sent_s, now, code, connection.image))
        connection.serial = -1
        self._under_way -= 1
        if connection.due_s >= self._count_from_s and (code != OK or now - connection.due_s > self._late_s):
            self._late_left -= 1
            if self._late_left < 0 and self.stopped_s is None:
                self.stopped_s = now - self._count_from_s
                self._due, self._following = [], nothing

    def _follow(self, now: float, code: int) -> None:
        following = self._following(now, code == OK)
        if following is not None:
            heapq.heappush(self._due, following)

    def _close(self, connection: _Connection) -> None:
        fd = connection.socket.fileno()
        if fd >= 0:
            del self._by_fd[fd]
            self._epoll.unregister(fd)
            connection.socket.close()


def raise_file_limit() -> None:
    """As many connections as the system allows: how many are under way is the server's doing."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _code_of(number: int) -> int:
    return REFUSED if number == errno.ECONNREFUSED else RESET


def nothing(_done_s: float, _ok: bool) -> None:
    """Nothing follows: of an open loop all requests are known beforehand."""
