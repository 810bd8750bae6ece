"""What examples are, by content: splits are drawn by it, and data that changed are recognised by it.

A content is a 64-bit hash of an image's file, or of its pixels where there is no file. Where an image goes depends on
its own content alone, so that adding or removing others moves none between training and held-out examples, and two
copies of one image never lie on both sides.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.data.decode import DAMAGED, Reader, run_in_threads, unreadable

Contents = NDArray[np.uint64]
"""(n,) one content for each example."""


def content_of(data: "bytes | memoryview") -> int:
    """The content of these bytes, 0 <= content < 2**64."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def contents_of_arrays(arrays: NDArray[np.generic]) -> Contents:
    """The contents (n,) of the rows of an array (n, ...)."""
    rows = np.ascontiguousarray(arrays)
    return np.fromiter((content_of(row.tobytes()) for row in rows), np.uint64, len(rows))


def contents_of_files(readers: Sequence[Reader], names: Sequence[str]) -> Contents:
    """The contents (n,) of files; raises `UserError` with the name of one that cannot be read."""
    found = np.zeros(len(readers), np.uint64)

    def work(index: int) -> None:
        try:
            found[index] = content_of(readers[index]())
        except DAMAGED as error:
            raise unreadable(names[index], error) from error

    run_in_threads(work, len(readers))
    return found


def remembering(read: Reader, contents: Contents, index: int) -> Reader:
    """The same reader, which leaves the content of what it read in `contents[index]`."""

    def read_and_note() -> bytes:
        data = read()
        contents[index] = content_of(data)
        return data

    return read_and_note


def labelled(contents: Contents, labels: Sequence[bytes]) -> Contents:
    """Contents (n,) of examples together with their labels: one that was labelled anew has another."""
    pairs = zip(contents, labels, strict=True)
    return np.fromiter((content_of(c.tobytes() + label) for c, label in pairs), np.uint64, len(contents))


def drawn(contents: Contents, salt: str) -> NDArray[np.float64]:
    """For each example a number (n,) that is uniform on [0, 1) and depends on its content and on `salt` alone."""
    salted = (content_of(c.tobytes() + salt.encode()) for c in contents)
    return np.fromiter(salted, np.uint64, len(contents)) / np.float64(2**64)


def hold_out(
    labels: NDArray[np.int64], contents: Contents, fraction: float, salt: str, *, keep: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices `(kept, held_out)`, both sorted: each example is held out with the probability `fraction`, by content.

    Of each class at least one example is held out, and at least `keep` (>= 1) are kept; a class that has no more than
    these is kept whole. Only in a class that is so small that this decides may an example that is added move another.
    """
    position = drawn(contents, salt)
    held: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) <= keep:
            continue
        members = members[np.argsort(position[members], kind="stable")]
        count = int((position[members] < fraction).sum())
        held.append(members[: min(max(1, count), len(members) - keep)])
    held_out = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out
