"""The part of a server's answer that has to be right, read so quickly that it can be done under load.

Answers also carry times and scores; scores of the same image may differ in the last digit between batches. What must
not differ is the label, or the labels of all objects.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

LABEL, LABELS, TENSOR, SCORES = "label", "labels", "tensor", "scores"

_LABEL = re.compile(rb'"label"\s*:\s*("(?:[^"\\]|\\.)*")')
_DATA = re.compile(rb'"data"\s*:\s*(\[[^\]]*\])')
_SIZE = re.compile(rb'"binary_data_size"\s*:\s*(\d{1,9})')
_JSON_HEAD = re.compile(rb"^\s*\{")

Read = Callable[[bytes], bytes | None]
"""From a body to the text that has to be equal; None where there is no answer in it."""


def _first_label(body: bytes) -> bytes | None:
    found = _LABEL.search(body) if _JSON_HEAD.match(body) else None
    return _compact(found[1]) if found else None


def _all_labels(body: bytes) -> bytes | None:
    """Of the `objects`, sorted: those that are equally sure may change places."""
    _, found, objects = body.partition(b'"objects"')
    if not found or not _JSON_HEAD.match(body):
        return None
    return b",".join(sorted(_compact(text) for text in _LABEL.findall(objects)))


def _json_tensor(body: bytes) -> bytes | None:
    found = _DATA.search(body) if _JSON_HEAD.match(body) else None
    return _compact(found[1]) if found else None


def _largest_score(body: bytes) -> bytes | None:
    """Index of the largest value of the float32 tensor behind the JSON of an answer in binary form."""
    told = _SIZE.search(body[:4096])
    if told is None:
        return None
    size = int(told[1])
    if size == 0 or size % 4 or body[-size - 1 : -size] != b"}":
        return None
    return str(int(np.frombuffer(body[-size:], "<f4").argmax())).encode()


READERS: Mapping[str, Read] = {
    LABEL: _first_label,
    LABELS: _all_labels,
    TENSOR: _json_tensor,
    SCORES: _largest_score,
}


def label_text(label: str) -> bytes:
    """What `LABEL` reads from an answer with this label."""
    return _compact(json.dumps(label).encode())


def labels_text(labels: Sequence[str]) -> bytes:
    """What `LABELS` reads from an answer with objects of these labels."""
    return b",".join(sorted(label_text(label) for label in labels))


def tensor_text(labels: Sequence[str]) -> bytes:
    """What `TENSOR` reads from an answer with a tensor of these labels."""
    return b"[" + b",".join(label_text(label) for label in labels) + b"]"


def phases_ms(bodies: Sequence[bytes]) -> dict[str, float]:
    """Median time of each phase in ms, of those answers that tell one in `ms`; empty where none does."""
    seen: dict[str, list[float]] = {}
    for body in bodies:
        try:
            told: Any = json.loads(body)
        except ValueError:  # also what is no text at all
            continue
        times = told.get("ms") if isinstance(told, dict) else None
        for name, value in times.items() if isinstance(times, dict) else ():
            if isinstance(value, int | float):
                seen.setdefault(str(name), []).append(float(value))
    return {name: float(np.median(values)) for name, values in seen.items()}


@lru_cache(maxsize=4096)
def _compact(text: bytes) -> bytes:
    """JSON, written in one way: escapes and spaces may differ between servers."""
    try:
        return json.dumps(json.loads(text), separators=(",", ":")).encode()
    except ValueError:
        return text
