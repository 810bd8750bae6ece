"""HTTP/1.1 responses, read piece by piece as they arrive (RFC 9112): just what a load generator needs, and no more."""

import re

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
MAX_HEAD_BYTES = 65_536


class MalformedResponseError(Exception):
    """What was received is no HTTP response."""


class Response:
    """One response, as far as it has arrived."""

    __slots__ = ("_buffer", "_chunked", "_length", "_start", "body", "complete", "keep_alive", "status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        """Where the body begins; 0: the head is not whole."""
        self._length = -1
        """Of the body; -1: not told."""
        self._chunked = False
        self.status = 0
        self.keep_alive = True
        """False: the server closes the connection after it."""
        self.complete = False
        self.body = b""

    @property
    def begun(self) -> bool:
        return bool(self._buffer)

    def feed(self, data: bytes) -> bool:
        """Take more bytes; whether the response is whole.

        Raises:
            MalformedResponseError: this cannot become a response.
        """
        self._buffer += data
        if not self._start and not self._read_head():
            return False
        if self._chunked:
            return self._read_chunks()
        if 0 <= self._length <= len(self._buffer) - self._start:
            self._finish(bytes(self._buffer[self._start : self._start + self._length]))
        return self.complete

    def end(self) -> bool:
        """The server closed the connection; whether that made the response whole."""
        if self._start and not self._chunked and self._length < 0:
            self.keep_alive = False
            self._finish(bytes(self._buffer[self._start :]))
        return self.complete

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES or not b"HTTP/1.".startswith(self._buffer[:7]):
                raise MalformedResponseError
            return False
        head = bytes(self._buffer[: end + 2])
        status = _STATUS.match(head)
        if status is None:
            raise MalformedResponseError
        if status[2] == b"100":  # Continue: the real one follows
            del self._buffer[: end + 4]
            return bool(self._buffer) and self._read_head()
        self.status = int(status[2])
        length = _LENGTH.search(head)
        self._length = int(length[1]) if length else 0 if self.status in (204, 304) else -1
        self._chunked = _CHUNKED.search(head) is not None
        self.keep_alive = status[1] == b"1" and _CLOSE.search(head) is None
        self._start = end + 4
        return True

    def _read_chunks(self) -> bool:
        at, parts = self._start, list[bytes]()
        while True:
            line_end = self._buffer.find(b"\r\n", at)
            if line_end < 0:
                return False
            size_text = bytes(self._buffer[at:line_end]).partition(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError:
                raise MalformedResponseError from None
            if size == 0:
                # Either the empty line follows at once, or trailing headers do, which end with one.
                if self._buffer[line_end : line_end + 4] == b"\r\n\r\n" or b"\r\n\r\n" in self._buffer[line_end:]:
                    self._finish(b"".join(parts))
                return self.complete
            if len(self._buffer) < line_end + 2 + size + 2:
                return False
            parts.append(bytes(self._buffer[line_end + 2 : line_end + 2 + size]))
            at = line_end + 2 + size + 2

    def _finish(self, body: bytes) -> None:
        self.body, self.complete = body, True
