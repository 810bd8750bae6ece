"""The files that the examples of a split were made from: what a deployed network will be given."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nas.data.decode import Reader
from nas.errors import UserError

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Originals:
    """Image files of one folder or archive, one for each example of a split, in its order."""

    root: Path
    """The folder, or the archive."""
    names: tuple[Parts, ...]
    """Path of each file below `root`, in parts."""

    def __len__(self) -> int:
        return len(self.names)

    def take(self, indices: Iterable[int]) -> "Originals":
        """The files at `indices`, in that order."""
        return Originals(self.root, tuple(self.names[i] for i in indices))

    def readers(self) -> list[Reader]:
        """How to read each of them, in order; those of a compressed tar are read into memory.

        Raises:
            UserError: the archive is not what it was.
        """
        if self.root.is_dir():
            return [partial(Path.read_bytes, self.root.joinpath(*name)) for name in self.names]
        from nas.data.decode import IMAGE_SUFFIXES
        from nas.data.tree import read_archive

        files = read_archive(self.root, IMAGE_SUFFIXES, frozenset(self.names)).files
        missing = next((name for name in self.names if name not in files), None)
        if missing is not None:
            raise UserError(f"'{self.root}' no longer has {'/'.join(missing)}", "restore it, or begin a new search")
        return [files[name] for name in self.names]

    def identity(self) -> str:
        """A hash of which files these are: their places, sizes and times of their last change. No file is read.

        Raises:
            UserError: a file is gone.
        """
        each = [self.root.joinpath(*name) for name in self.names] if self.root.is_dir() else [self.root]
        found = hashlib.blake2b(repr(self.names).encode(), digest_size=16)
        for path in each:
            try:
                status = path.stat()
            except OSError as error:
                raise UserError(f"cannot read '{path}': {error.strerror}", "restore it, or begin anew") from error
            found.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
        return found.hexdigest()

    def labels(self) -> list[str]:
        """Names for messages."""
        return [f"{self.root}/{'/'.join(name)}" for name in self.names]
