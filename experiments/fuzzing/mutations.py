"""Small changes of bytes, texts and JSON documents, drawn from a generator: the same one makes the same change."""

import copy
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator
Mutate = Callable[[Path, Rng], None]
"""Changes one file in place."""

_BYTES = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\n",
    b"../",
)
_WORDS = (
    *("", "0", "-1", "1e999", "nan", "99999999999999999999", "../../../escaped", "/escaped", "\x00", "é\u202e", "null"),
    *("[", "{", "}", "&a", "*a", "!!python/object:os.system", "<!ENTITY a 'b'>", "&a;", "%n", "x" * 5000, "${HOME}"),
    *("[" * 100_000, "<a>" * 20_000, '{"a":' * 20_000),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**63, -(2**63), 10**40, 0.5, -0.0, 1e308, 1e-320, "", "a", "\x00"),
    *("../../../escaped", "/escaped", "x" * 5000, "\ud800", [], {}, [[]], [None], {"": None}, [1] * 2000),
    *(float("nan"), float("inf"), float("-inf"), "1e5", "nan"),
)


def pick(rng: Rng, options: Sequence[Any]) -> Any:
    """One of `options`, as it is."""
    return options[int(rng.integers(len(options)))]


def bytes_changed(path: Path, rng: Rng) -> None:
    """A few bits turned, bytes replaced, parts removed, doubled, moved or put in, or the end cut off."""
    data = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 6))):
        at = _place(len(data), rng)
        length = min(len(data) - at, 2 ** int(rng.integers(10)))
        kind = int(rng.integers(7))
        if kind == 0 and data:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            word = pick(rng, _BYTES)
            data[at : at + len(word)] = word
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = data[at : at + length] * int(rng.integers(1, 4))
        elif kind == 4:
            data[at : at + length] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
        elif kind == 5:
            data[at:at] = pick(rng, _BYTES) * int(rng.integers(1, 50))
        else:
            del data[at:]
    path.write_bytes(data)


def _place(length: int, rng: Rng) -> int:
    """A place in a file, half of the time in its head, where formats say what follows."""
    most = min(length, 200) if rng.random() < 0.5 else length
    return int(rng.integers(most)) if most else 0


def text_changed(path: Path, rng: Rng) -> None:
    """Words and lines replaced, removed, doubled or moved; now and then bytes."""
    if rng.random() < 0.15:
        bytes_changed(path, rng)
        return
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    for _ in range(int(rng.integers(1, 5))):
        if rng.random() < 0.3:
            lines = text.splitlines(keepends=True)
            at = int(rng.integers(len(lines) + 1))
            lines[at:at] = lines[at : at + int(rng.integers(1, 4))] * int(rng.integers(1, 30))
            del lines[int(rng.integers(len(lines) + 1)) :][:1]
            text = "".join(lines)
            continue
        words = list(re.finditer(r"[^\s<>:,\[\]{}/\"=]+|[<>:,\[\]{}/\"=]", text))
        if not words:
            text = pick(rng, _WORDS)
            continue
        found = pick(rng, words)
        text = text[: found.start()] + pick(rng, (*_WORDS, pick(rng, words).group())) + text[found.end() :]
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


def json_changed(path: Path, rng: Rng) -> None:
    """Values of a document replaced, removed, renamed, doubled or nested deeply; now and then its text."""
    if rng.random() < 0.2:
        text_changed(path, rng)
        return
    document = json.loads(path.read_text(encoding="utf-8"))
    for _ in range(int(rng.integers(1, 4))):
        document = _changed(document, rng)
    path.write_text(json.dumps(document), encoding="utf-8")


def _changed(document: Any, rng: Rng) -> Any:
    holder: Any = {"": document}
    parent: Any = holder
    key: Any = ""
    while isinstance(parent[key], dict | list) and parent[key] and (parent is holder or rng.random() < 0.75):
        parent = parent[key]
        key = pick(rng, list(parent)) if isinstance(parent, dict) else int(rng.integers(len(parent)))
    kind = int(rng.integers(6))
    if kind == 0 and parent is not holder:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict) and parent is not holder:
        parent[str(pick(rng, _WORDS))] = parent.pop(key)
    elif kind == 2:
        other = copy.deepcopy(parent[key])
        parent[key] = [other, other]
    elif kind == 3 and rng.random() < 0.2:
        for _ in range(int(pick(rng, (5, 50, 400)))):  # not deeper: `json.dumps` has to write it
            parent[key] = [parent[key]]
    else:
        parent[key] = copy.deepcopy(pick(rng, _VALUES))
    return holder[""]
