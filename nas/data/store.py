"""The store of images on disk: what does not fit into memory is made once, in parts, and read by all processes.

An entry is a folder with the images as one array (`images.npy`), a number that belongs to each (`contents.npy`: the
content of what it was made from, see `nas.data.contents`, or what else its maker needs beside it), a checksum of each
part that is done (`parts.npy`) and what it is (`entry.json`). Its name is a hash of what it is, so that other images,
or the same ones changed, are another entry. A process that is killed leaves a part undone, which the next one makes;
two processes that want the same entry make it one after the other, the second one by finding it done.

A part that is marked as done and does not have its checksum is made again. All parts are compared when an entry is not
whole yet, and by `damaged_parts`; of one that is whole the first and the last.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.data.stored import StoredImages
from nas.errors import UserError
from nas.files.cache import user_cache
from nas.files.writing import write_json
from nas.machine import available_memory_bytes
from nas.text import memory_size

PART_BYTES = 32 * 2**20
"""Bytes of a part: what is made again after a kill, and what is held in memory while an entry is made."""
MEMORY_SHARE = 0.25
"""Share of the free memory beyond which images are stored: beside them, some are taken, resized and trained on."""
SPARE_BYTES = 2**30
"""Bytes of the disk that are left to others."""

_LOG = logging.getLogger("nas.data")

Make = Callable[[int, int], tuple[NDArray[np.uint8], NDArray[np.uint64]]]
"""`make(start, stop)`: images (stop - start, side, side, 3) and the numbers (stop - start,) that belong to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an entry is."""

    source: str
    """What its images are made from, for people: a folder, say."""
    identity: str
    """What its images are made from, and how: any text that is another one where they are others."""
    images: int
    side: int
    """Rows and columns of each."""

    @property
    def key(self) -> str:
        """Name of the entry's folder."""
        text = json.dumps([self.identity, self.images, self.side])
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def image_bytes(self) -> int:
        return self.side * self.side * 3

    @property
    def bytes(self) -> int:
        """Bytes of all images."""
        return self.images * self.image_bytes

    @property
    def part_images(self) -> int:
        return max(1, PART_BYTES // self.image_bytes)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First row and the one after the last of each part."""
        step = self.part_images
        return [(start, min(start + step, self.images)) for start in range(0, self.images, step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the store, for people."""

    folder: Path
    wanted: Wanted
    parts_done: int

    @property
    def whole(self) -> bool:
        return self.parts_done == len(self.wanted.parts)


def store_folder() -> Path:
    """Where entries are; it need not exist."""
    return user_cache() / "images"


def too_large_for_memory(bytes: int) -> bool:
    """True if images of so many bytes are to be stored on disk."""
    return bytes > MEMORY_SHARE * available_memory_bytes()


def stored_images(wanted: Wanted, make: Make) -> tuple[StoredImages, NDArray[np.uint64]]:
    """The images of an entry and the numbers (n,) that belong to them; what is not there yet is made.

    Raises:
        UserError: the disk has not enough room, or what `make` raises.
    """
    folder = store_folder() / wanted.key
    with _alone(folder):
        making = _Making(folder, wanted)
        making.complete(make)
        return StoredImages(folder / "images.npy"), making.contents


def entries() -> list[Entry]:
    """What is in the store, the largest first; a folder that is none of ours is left out."""
    found = []
    for file in store_folder().glob("*/entry.json"):
        try:
            wanted = Wanted(**json.loads(file.read_text("utf-8")))
            done = int(np.count_nonzero(np.load(file.with_name("parts.npy"), allow_pickle=False)))
        except (OSError, ValueError, TypeError):
            continue
        found.append(Entry(folder=file.parent, wanted=wanted, parts_done=done))
    return sorted(found, key=lambda entry: (-entry.wanted.bytes, entry.folder.name))


def damaged_parts(entry: Entry) -> int:
    """Parts of an entry that are done but no longer what they were; the next use of the entry makes them again."""
    with _alone(entry.folder):
        return _Making(entry.folder, entry.wanted).forget_damaged(range(len(entry.wanted.parts)))


def remove(entry: Entry) -> None:
    """Delete an entry; processes that have it open keep what they have.

    Raises:
        UserError: another process makes it just now.
    """
    with _alone(entry.folder, waits=False):
        shutil.rmtree(entry.folder, ignore_errors=True)


class _Making:
    """The files of one entry, which this process alone writes.

    They are written as files are, not through a map: a map's write to a full disk would end the process.
    """

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self._folder, self._wanted, self._parts = folder, wanted, wanted.parts
        if not (folder / "entry.json").exists():
            self._begin()
        self._images = self._array("images", (wanted.images, wanted.side, wanted.side, 3), np.uint8)
        self.contents: NDArray[np.uint64] = np.array(self._array("contents", (wanted.images,), np.uint64))
        self._sums = np.array(self._array("parts", (len(self._parts),), np.uint64))

    def complete(self, make: Make) -> None:
        """Make the parts that are not done."""
        last = len(self._parts) - 1
        self.forget_damaged((0, last) if self._sums.all() else range(last + 1))
        for number, (start, stop) in enumerate(self._parts):
            if not self._sums[number]:
                images, self.contents[start:stop] = make(start, stop)
                self._write("images", start, images)
                self._write("contents", start, self.contents[start:stop])
                self._mark(number, _checksum(images, self.contents[start:stop]))

    def forget_damaged(self, numbers: Iterable[int]) -> int:
        """Mark parts that are not what they were as not done; returns how many there are."""
        found = 0
        for number in set(numbers):
            start, stop = self._parts[number]
            done = int(self._sums[number])
            if done and done != _checksum(self._images[start:stop], self.contents[start:stop]):
                self._mark(number, 0)
                found += 1
        return found

    def _begin(self) -> None:
        self._require_room()
        wanted = self._wanted
        _LOG.warning(
            "%d images of %d px take %s: they are stored in %s (nas cache lists and removes such)",
            wanted.images, wanted.side, memory_size(wanted.bytes), self._folder,
        )  # fmt: skip
        self._folder.mkdir(exist_ok=True)
        shapes = {"images": (wanted.images, wanted.side, wanted.side, 3), "contents": (wanted.images,)}
        for name, shape in {**shapes, "parts": (len(self._parts),)}.items():
            dtype = np.uint8 if name == "images" else np.uint64
            # A file with a hole: it takes room as it is filled.
            np.lib.format.open_memmap(self._file(name), "w+", dtype=dtype, shape=shape)
        write_json(self._folder / "entry.json", asdict(wanted))

    def _array(self, name: str, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
        found: NDArray[Any] = np.load(self._file(name), mmap_mode="r", allow_pickle=False)
        if found.shape != shape or found.dtype != dtype:
            raise UserError(f"'{self._file(name)}' is not what it was", f"remove {self._folder}")
        return found

    def _mark(self, number: int, checksum: int) -> None:
        self._sums[number] = checksum
        self._write("parts", number, self._sums[number : number + 1])

    def _write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        with self._file(name).open("r+b") as file:
            version = np.lib.format.read_magic(file)
            assert version == (1, 0)
            np.lib.format.read_array_header_1_0(file)
            file.seek(start * rows[0].nbytes, os.SEEK_CUR)
            file.write(np.ascontiguousarray(rows).data)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.npy"

    def _require_room(self) -> None:
        free = shutil.disk_usage(self._folder.parent).free
        needed = self._wanted.bytes + SPARE_BYTES
        if free < needed:
            raise UserError(
                f"{self._wanted.images} images of {self._wanted.side} px need {memory_size(needed)} in "
                f"{self._folder.parent}, {memory_size(free)} is free",
                "make room (nas cache lists what is there), set XDG_CACHE_HOME to another disk, or give a lower "
                "--max-resolution",
            )


def _checksum(images: NDArray[np.uint8], contents: NDArray[np.uint64]) -> int:
    """Of a part; never 0, which is a part that is not done."""
    digest = hashlib.blake2b(np.ascontiguousarray(images).data, digest_size=8)
    digest.update(contents.tobytes())
    return int.from_bytes(digest.digest(), "little") or 1


@contextmanager
def _alone(folder: Path, *, waits: bool = True) -> Iterator[None]:
    """No other process is at the entry in `folder`; the lock ends with its process.

    Raises `UserError` where another one is, and this one does not wait for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another process is at {folder} just now", "wait for its end") from error
        yield
