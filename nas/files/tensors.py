"""Tensors and their story in one safetensors file that appears whole or not at all; nothing is unpickled.

The story (JSON) and checksums lie in the file's header, so that all of it is of the same moment, and a change of any
byte that means something is noticed.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from nas.errors import UserError
from nas.files.writing import write_whole

Tensors = dict[str, torch.Tensor]

_ZIP = b"PK\x03\x04"
"""First bytes of a file that `torch.save` wrote."""


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], story: Mapping[str, Any]) -> None:
    """Replace `path`; the old file survives whatever goes wrong.

    Raises:
        UserError: it cannot be written (a full disk).
    """
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(story)
    sums = {"sha256": checksum(plain), "header_sha256": _header_checksum(plain, text)}
    try:
        write_whole(path, save(plain, {"story": text, **sums}), durable=True)
    except OSError as error:
        raise UserError(
            f"cannot save '{path}': {error.strerror}",
            "make room, then run the same command again: it goes on from the last checkpoint, which is whole",
        ) from error


def load_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """The tensors (on the CPU) and their story; an empty story for files of others.

    Raises:
        UserError: no such file, a pickle, a truncated or a changed file.
    """
    if not path.is_file():
        raise UserError(f"'{path}' does not exist", "give a safetensors file")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        if is_pickle(path):
            raise UserError(
                f"'{path}' is a pickle, which may run any code and is never loaded",
                "save its tensors with safetensors.torch.save_file",
            ) from error
        raise UserError(
            f"'{path}' is not a whole safetensors file: {error}", "get it again, or remove it and run the same again"
        ) from error
    if metadata.keys() & {"story", "sha256", "header_sha256"} and not _as_written(tensors, metadata):
        raise UserError(f"'{path}' was changed after it was written", "get it again, or remove it")
    story: dict[str, Any] = json.loads(metadata.get("story", "{}"))
    return tensors, story


def _as_written(tensors: Tensors, metadata: Mapping[str, str]) -> bool:
    header_as_written = metadata.get("header_sha256") == _header_checksum(tensors, metadata.get("story", ""))
    return header_as_written and metadata.get("sha256") == checksum(tensors)


def checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of names and values of tensors on the CPU, as hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _header_checksum(tensors: Mapping[str, torch.Tensor], story: str) -> str:
    """Checksum of names, types and shapes of the tensors, and of the story."""
    kinds = [(name, str(tensor.dtype), list(tensor.shape)) for name, tensor in sorted(tensors.items())]
    return hashlib.sha256(json.dumps([kinds, story]).encode()).hexdigest()


def is_pickle(path: Path) -> bool:
    """True if the file is a pickle, by its first 8 bytes. A safetensors file begins with its header's length, whose
    last 4 bytes are 0."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(_ZIP):
        return True
    return start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5" and (start[2:3] == b"\x95" or any(start[4:]))
