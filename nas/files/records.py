"""A JSON document about files beside it, with their checksums: believed only where all of them are as they were.

Written after the files: whatever is killed, at any moment, leaves either a whole record or none.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nas.files.writing import sha256_of, write_json


def write_record(folder: Path, name: str, document: dict[str, Any], files: Sequence[Path]) -> None:
    """Write `folder`/`name`: the document, and the checksums of `files` (in `folder`)."""
    write_json(folder / name, {**document, "sha256": {f.name: sha256_of(f) for f in files}})


def read_record(folder: Path, name: str, expected: dict[str, Any]) -> dict[str, Any] | None:
    """The record, where it is whole, has the `expected` entries, and its files have not changed; else None."""
    try:
        document: Any = json.loads((folder / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("sha256"), dict):
        return None
    if any(document.get(key) != value for key, value in json.loads(json.dumps(expected)).items()):
        return None
    files = {folder / file: checksum for file, checksum in document["sha256"].items()}
    return document if all(f.is_file() and sha256_of(f) == checksum for f, checksum in files.items()) else None
