"""The port of a server: it is ours alone, and one that is taken is said so."""

import socket
import sys

import pytest

from nas.errors import UserError
from nas.serving.listening import listen, reserve, take_nobody_new


@pytest.mark.parametrize("shared", [False, True], ids=["another program", "another server of ours"])
def test_a_port_that_is_taken(shared: bool) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is taken by another program") as error:
            reserve("127.0.0.1", port)
        assert "--port" in str(error.value.hint)
    with (
        reserve("127.0.0.1", port) as reserved,
        listen("127.0.0.1", port) as first,
        listen("127.0.0.1", port) as second,
    ):
        assert {one.getsockname()[1] for one in (reserved, first, second)} == {port}


@pytest.mark.skipif(sys.platform != "linux", reason="the filter is the Linux kernel's")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_before_it_is_closed_a_socket_takes_those_who_are_connected_and_nobody_else(host: str) -> None:
    with reserve(host, 0) as reserved, listen(host, reserved.getsockname()[1]) as listening:
        where = listening.getsockname()[:2]
        with socket.create_connection(where, timeout=10) as early:
            take_nobody_new(listening)
            with pytest.raises(TimeoutError):
                socket.create_connection(where, timeout=0.3)
            early.sendall(b"hello")
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.recv(5) == b"hello"
                accepted.sendall(b"bye")
                assert early.recv(3) == b"bye"
            with pytest.raises(BlockingIOError):
                listening.accept()
