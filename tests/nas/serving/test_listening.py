"""The port of a server: it is ours alone, and one that is taken is said so."""

import socket

import pytest

from nas.errors import UserError
from nas.serving.listening import listen, reserve


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
