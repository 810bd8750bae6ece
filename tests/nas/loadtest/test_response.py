"""Responses that arrive in pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.loadtest.response import MalformedResponseError, Response

BODY = b'{"label": "cat"}\r\n\r\n0\r\n'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"5;ext=1\r\n" + BODY[:5] + b"\r\n%X\r\n" % (len(BODY) - 5) + BODY[5:] + b"\r\n0\r\n\r\n"
)  # fmt: skip
TRAILED = CHUNKED[:-2] + b"X-Checksum: 1\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@given(whole=st.sampled_from([PLAIN, CHUNKED, TRAILED, CONTINUED]), cuts=st.lists(st.integers(1, 200), max_size=8))
def test_it_is_whole_with_its_last_byte_however_it_is_cut(whole: bytes, cuts: list[int]) -> None:
    response = Response()
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    done = [response.feed(whole[a:b]) for a, b in pairwise(edges)]
    assert done == [False] * (len(done) - 1) + [True]
    assert (response.status, response.body, response.keep_alive) == (200, BODY, True)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response = Response()
    assert not response.feed(b"HTTP/1.0 503 Busy\r\n\r\nlater")
    assert response.end()
    assert (response.status, response.body, response.keep_alive) == (503, b"later", False)


def test_a_connection_that_closes_early_leaves_nothing_whole() -> None:
    for piece in (b"", b"HTTP/1.1 200 OK\r\nContent-Le", PLAIN[:-1], CHUNKED[:-3]):
        response = Response()
        assert not response.feed(piece)
        assert not response.end()


def test_the_end_of_keep_alive_is_seen() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert not response.keep_alive


@pytest.mark.parametrize(
    "garbage",
    [b"SSH-2.0-OpenSSH\r\n", b"\x00" * 40, b"HTTP/1.1 abc\r\n\r\n", CHUNKED.replace(b"5;ext=1", b"five")],
)
def test_what_is_no_response_is_refused(garbage: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        Response().feed(garbage)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        Response().feed(data)
    except MalformedResponseError:
        return
