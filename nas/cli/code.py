"""Which code of others a command line may import: what was named on this machine, nothing that a file alone names.

A network's description, a run, a bundle and a table of a space can name code by `package.module:ATTRIBUTE`, and
`python -m nas` finds modules in the working directory: without this, a folder from elsewhere could run what lies in it.
Named is what stands on a command line, or in the environment variable `NAS_ALLOW_CODE`. It is remembered together with
the place of its package, so that another package of the same name is another one.

Python programs that import `nas` are not concerned: what they read is their own choice.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from nas.files.writing import write_json
from search_spaces.code import ALLOWED

FILE = "code.json"
"""Of the user's cache: reference -> where its package was when it was named."""
LIBRARIES = ("torchvision", "timm")
"""`timm:NAME` names a network, no attribute of a module."""
_REFERENCE = re.compile(r"(?:^|(?<=[=:,]))(?=([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?:$|[:/,]))")
"""Anywhere in an argument: alone, behind `python:` or `--option=`, before `:FILE` or `/NETWORK`."""


def allow_code(arguments: Sequence[str], folder: Path) -> None:
    """From here on, this process and its children import what was named, in `arguments` or earlier, and nothing else.

    Args:
        arguments: the command line, without the program's name.
        folder: the user's cache; one that cannot be written remembers nothing.
    """
    named = {*typed(arguments), *os.environ.get(ALLOWED, "").split()}
    known = _read(folder / FILE)
    new = {reference: place for reference in sorted(named) if (place := _place(reference))}
    if any(known.get(reference) != place for reference, place in new.items()):
        known |= new
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / FILE, known)
    remembered = {reference for reference, place in known.items() if _place(reference) == place}
    os.environ[ALLOWED] = " ".join(sorted(named | remembered))


def typed(arguments: Iterable[str]) -> set[str]:
    """The references `package.module:ATTRIBUTE` among the arguments of a command line."""
    found = {match for argument in arguments for match in _REFERENCE.findall(argument)}
    return {reference for reference in found if reference.partition(":")[0] not in LIBRARIES}


def _place(reference: str) -> str | None:
    """Where the outermost package of a reference would be imported from; None where there is none.

    The outermost, because asking for one within it imports it.
    """
    package = reference.partition(":")[0].partition(".")[0]
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    places = [found.origin] if found.has_location else list(found.submodule_search_locations or ())
    return os.pathsep.join(os.path.abspath(place) for place in places if place) or found.origin


def _read(path: Path) -> dict[str, str]:
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, Mapping):
        return {}
    return {key: value for key, value in document.items() if isinstance(key, str) and isinstance(value, str)}
