"""What a job is about: the files of a folder, in an order that is always the same."""

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from nas.data.decode import IMAGE_SUFFIXES
from nas.errors import UserError
from nas.scoring.scorer import Item, Stamp

OTHER_IMAGES = (".avif", ".eps", ".heic", ".heif", ".ico", ".jfif", ".jp2", ".jxl", ".psd", ".svg", ".tga")
"""Endings of further images, which are listed too: their rows say that they cannot be read, or hold an answer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a listing."""

    name: str
    """Path below the listing's folder, with `/`."""
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder and of all folders in it, sorted by name."""

    folder: Path
    entries: tuple[Entry, ...]
    others: int
    """Files that were left out, since their names are not those of images."""

    @property
    def sha256(self) -> str:
        """Of all names, sizes and times."""
        found = hashlib.sha256()
        for entry in self.entries:
            line = json.dumps([entry.name, entry.stamp.size_bytes, entry.stamp.mtime_ns])  # escapes odd bytes of names
            found.update(line.encode("ascii") + b"\n")
        return found.hexdigest()

    def items(self, start: int, stop: int) -> list[Item]:
        """Entries as they are scored; rows name files by what was typed as their folder."""
        here = self.folder.absolute()
        return [
            Item(readable(str(self.folder / e.name)), str(here / e.name), e.stamp) for e in self.entries[start:stop]
        ]


def list_folder(folder: Path, suffixes: Collection[str] | None = (*IMAGE_SUFFIXES, *OTHER_IMAGES)) -> Listing:
    """The files in `folder` and its sub-folders whose names end so (None: all), except hidden ones.

    Raises:
        UserError: there is no such folder, it cannot be read, or there are no such files in it.
    """
    if not folder.is_dir():
        raise UserError(f"'{folder}' is no folder", "give a folder with images, also in sub-folders")
    entries: list[Entry] = []
    others = 0
    for name in sorted(_names(folder)):
        if suffixes is not None and os.path.splitext(name)[1].lower() not in suffixes:
            others += 1
            continue
        try:
            status = os.stat(folder / name)
        except OSError:  # a link that leads nowhere, or a file that has just gone: its row will say so
            entries.append(Entry(name, Stamp(-1, -1)))
            continue
        if stat.S_ISREG(status.st_mode):
            entries.append(Entry(name, Stamp.of(status)))
        else:  # a pipe would keep us waiting
            others += 1
    if not entries:
        beside = f", only {others} other files" if others else ""
        raise UserError(f"there are no images in '{folder}'{beside}", "give a folder with images, also in sub-folders")
    return Listing(folder, tuple(entries), others)


def readable(name: str) -> str:
    """`name` as a text that every program can read: bytes of a file's name that are no UTF-8 become `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _names(folder: Path) -> Iterator[str]:
    """Names of all files below `folder`, with `/`, links to files among them."""

    def refuse(error: OSError) -> None:
        raise UserError(
            f"the folder '{error.filename}' cannot be read: {error.strerror}", "make it readable, or move it elsewhere"
        ) from error

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = os.path.relpath(root, folder).replace(os.sep, "/")
        prefix = "" if below == "." else f"{below}/"
        yield from (prefix + name for name in names if not name.startswith("."))
