"""The port that all processes of a server share.

Each process listens on a socket of its own (SO_REUSEPORT), and the kernel deals connections out among them by a hash of
the client's address. On one socket that all inherit, whoever wakes first takes what is there: of 20 connections made at
once all 20 came to one of two processes. The price: connections that a killed process had not accepted yet are reset.
"""

import ctypes
import errno
import os
import socket
import struct
import sys
from contextlib import suppress

from nas.errors import UserError

BACKLOG = 1024
_SO_ATTACH_FILTER = 26
"""Of Linux's `asm/socket.h`; the module `socket` has no name for it."""
_NO_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFF_FFFF))
"""Classic BPF, (code, jump if true, jump if false, value) as in Linux's `filter.h`: load byte 13 of the TCP header, the
flags; where SYN is among them drop the packet, else take it whole."""


def reserve(host: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen: the port, any free one for 0, is ours as long as it is open.

    Raises:
        UserError: somebody else has it, or the host is not this one.
    """
    family, address = _address(host, port)
    if port:  # with SO_REUSEPORT another server of the same user could share the port with us, unnoticed
        with _socket(family, shared=False) as alone:
            _bind(alone, address, host, port)
    reserved = _socket(family, shared=True)
    _bind(reserved, address, host, port)
    return reserved


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on a port that is reserved."""
    family, address = _address(host, port)
    listening = _socket(family, shared=True)
    _bind(listening, address, host, port)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


def take_nobody_new(listening: socket.socket) -> None:
    """Have the kernel drop the first packet of each new connection, as a step towards closing a listening socket.

    What is connected already can then be accepted to the last, in peace: closing resets what comes in between. Whoever
    is dropped tries again after a second, and finds another server or none. Nothing happens on other systems than
    Linux.
    """
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in _NO_SYN))
        with suppress(OSError):  # it works as well without, but for what comes in the moment of closing
            listening.setsockopt(
                socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_NO_SYN), ctypes.addressof(program))
            )


def url(host: str, port: int) -> str:
    """Where clients find it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _address(host: str, port: int) -> tuple[int, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"the host {host!r} is not known: {error}", "give an address of this machine: --host 127.0.0.1"
        ) from error
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def _socket(family: int, *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return made


def _bind(made: socket.socket, address: tuple[str, int], host: str, port: int) -> None:
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} is taken by another program", "choose another --port, or 0 for a free one"
            ) from error
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"cannot listen on {host} port {port}: {problem}", "choose another --host or --port") from error
