"""Folders for results: whether anything can be written there, and that only one process does."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from nas.errors import UserError
from nas.files.writing import remove_partials

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Values of `OSError.errno` where a disk is full."""


def check_writable(folder: Path) -> None:
    """Raises `UserError` where `folder` cannot be written or made: before hours of work, not after.

    Leaves nothing behind. It is tried out: root has every permission, also in /proc and on a read-only disk.
    """
    try:
        nearest = next(f for f in (folder.absolute(), *folder.absolute().parents) if f.exists())
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise UserError(
            f"'{folder}' cannot be written to: {error.strerror}", "name a folder you may write to"
        ) from error


LOCK = "lock"
"""The file by which processes keep each other out of a folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time works on what is in `folder`; the lock ends with its process, however that ends.

    Files that a killed process has left half-written in it are removed.

    Raises `UserError` where another process holds it, and `FileNotFoundError` where the folder is gone, or is removed
    and made again by another process just now.
    """
    with (folder / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise UserError(
                f"another process works on {folder} ({file.read().strip() or 'it does not say which'})",
                "wait for its end, or give another --out",
            ) from error
        if not os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / LOCK))
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        remove_partials(folder)
        yield
