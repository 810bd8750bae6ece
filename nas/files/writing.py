"""Files that appear whole or not at all, and their checksums."""

import hashlib
import json
import os
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, document: object) -> None:
    """Write a JSON file so that a reader finds the old one or the new one, never half of it."""
    write_whole(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file so that a reader finds the old one or the new one, never half of it.

    `durable`: also after the machine has lost its power.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)  # on a full disk it takes room
        raise
