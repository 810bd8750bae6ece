"""Files and folders that appear whole or not at all, also where several processes write the same one; checksums.

Everything is written under a name of its own beside its place, and renamed when it is whole: readers find the old
content or the new one, and of several writers the last wins. A writer that is killed leaves its own file under that
other name, which nobody reads; `remove_partials` clears them away where nobody else can be writing.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

PARTIAL = ".partial"
"""Ending of the name of a file or folder that is not whole yet."""
_ATTEMPTS = 100
"""So often a folder is put in its place again that another process has put there first."""


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, document: object) -> None:
    """Write a JSON file so that a reader finds the old one or the new one, never half of it."""
    write_whole(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file so that a reader finds the old one or the new one, never half of it.

    Args:
        path: its folder has to exist.
        durable: also after the machine has lost its power.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    with staged_file(path) as staged, staged.open("wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())


@contextmanager
def staged_file(path: Path) -> Iterator[Path]:
    """A free name beside `path` to write a file to; at the end of the block the file takes the place of `path`.

    Where the block raises, whatever lies under that name is removed and `path` stays as it was.
    """
    staged = _beside(path)
    try:
        yield staged
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):  # on a full disk it takes room
            staged.unlink()
        raise


@contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path` to fill; at the end of the block it takes the place of `path` and all it held.

    Where the block raises, it is removed and `path` stays as it was. There is a moment at which a reader finds neither
    the old folder nor the new one: a folder cannot be replaced by another in one step.

    Raises `NotADirectoryError` where `path` is a file.
    """
    if _is_no_folder(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    staged, aside = _beside(path), _beside(path)
    staged.mkdir(parents=True)
    try:
        yield staged
        for attempt in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                os.replace(path, aside)
            try:
                os.replace(staged, path)
                break
            except OSError as error:
                overtaken = error.errno in (errno.ENOTEMPTY, errno.EEXIST)  # another process has just put its own there
                if attempt == _ATTEMPTS - 1 or not overtaken:
                    with suppress(OSError):
                        os.replace(aside, path)
                    raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def remove_partials(folder: Path) -> None:
    """Remove what killed processes left unfinished anywhere in `folder`, where nobody else may be writing."""
    for path in folder.rglob(f".*{PARTIAL}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_no_folder(path: Path) -> bool:
    """Something else than a folder lies at `path`; asked once, since another process may replace a folder meanwhile."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _beside(path: Path) -> Path:
    """A name that no other process and no other call uses; hidden, and none that a search for `*.json` would find."""
    return path.with_name(f".{path.name}.{os.getpid()}-{token_hex(4)}{PARTIAL}")
