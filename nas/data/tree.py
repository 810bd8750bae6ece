"""The files of a data set, in a folder on disk or inside a tar or zip archive.

Nothing of an archive is extracted, so no member name can write outside a folder.
"""

import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path

from nas.data.decode import Reader, ensure_fits
from nas.data.images import SplitName
from nas.data.originals import Originals, Parts
from nas.errors import UserError

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

SPLIT_NAMES: Mapping[str, SplitName] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""Names of the folders and files of a split, in lower case."""

CHECK_BYTES = 2**26
"""So much is read of a compressed archive, or of one file, before it is looked whether it fits into memory."""

# RuntimeError: of a member with a password; NotImplementedError: compressed in a way that Python does not know.
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError, RuntimeError, ValueError)
_ENCRYPTED = 1
"""Bit in a zip's entry."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Files (how to read each) and folders by their path's parts."""

    files: Mapping[Parts, Reader]
    folders: set[Parts]
    root: Path
    """The folder or archive that all of it is in."""
    above: Parts = ()
    """Path below the root that the parts go on from."""

    def children(self) -> list[str]:
        """Names of the top-level folders, sorted."""
        return sorted({parts[0] for parts in self.folders})

    def below(self, name: str) -> "Tree":
        """Contents of the top-level folder `name`."""
        return Tree(
            {parts[1:]: read for parts, read in self.files.items() if parts[0] == name and len(parts) > 1},
            {parts[1:] for parts in self.folders if parts[0] == name and len(parts) > 1},
            self.root,
            (*self.above, name),
        )

    def originals(self, files: Sequence[Parts]) -> Originals:
        """Some of its files, to be read again later."""
        return Originals(self.root, tuple((*self.above, *parts) for parts in files))


def split_of(text: str) -> SplitName | None:
    """The split that one of the words in `text` names ("instances_val2017": val); None for none, or for several."""
    found = {SPLIT_NAMES[word] for word in re.findall("[a-z]+", text.lower()) if word in SPLIT_NAMES}
    return found.pop() if len(found) == 1 else None


def split_of_folders(folders: Parts) -> SplitName | None:
    """The split that the innermost of `folders` to name one names."""
    return next((split for folder in reversed(folders) if (split := split_of(folder))), None)


def read_folder(path: Path, suffixes: tuple[str, ...]) -> Tree:
    """The files below `path` whose names end with one of `suffixes` (lower case); hidden ones are left out."""
    files: dict[Parts, Reader] = {}
    folders: set[Parts] = set()
    seen: set[str] = set()  # a link to a folder above must not lead round in circles
    for current, below, names in os.walk(path, followlinks=True):
        real = os.path.realpath(current)
        parts = Path(current).relative_to(path).parts
        if real in seen or any(_hidden((part,)) for part in parts):
            below.clear()
            continue
        seen.add(real)
        if parts:
            folders.add(parts)
        for name in names:
            if name.lower().endswith(suffixes) and not _hidden((name,)):
                files[*parts, name] = Path(current, name).read_bytes
    return Tree(files, folders, path.absolute())


def read_archive(path: Path, suffixes: tuple[str, ...], only: Collection[Parts] | None = None) -> Tree:
    """The same of a tar (plain or compressed) or zip. `only`: the files to read; None: all of them.

    Files are read where they are, when they are asked for; those of a compressed tar, which can be read from its
    beginning alone, are kept in memory.

    Raises:
        UserError: a damaged archive, one with a password, or a compressed tar that does not fit into memory. Its
            readers raise it too, where the archive is no longer what it was.
    """
    with _sentences(path):
        files, folders = (_of_zip if path.name.lower().endswith(".zip") else _of_tar)(path, suffixes, only)
    # An archive need not have entries for its folders.
    for parts in files:
        folders.update(parts[:depth] for depth in range(1, len(parts)))
    return Tree(files, folders, path.absolute())


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """What is wrong with an archive becomes a `UserError`."""
    try:
        yield
    except _DAMAGED as error:
        reason = (str(error).splitlines() or ["it is damaged"])[0].rstrip(":")  # tarfile lists every attempt
        raise UserError(
            f"cannot read archive '{path}': {reason}",
            "make it again with `tar -cf` or `zip -r`, without a password",
        ) from error


def _of_tar(
    path: Path, suffixes: tuple[str, ...], only: Collection[Parts] | None
) -> tuple[dict[Parts, Reader], set[Parts]]:
    files: dict[Parts, Reader] = {}
    folders: set[Parts] = set()
    total = next_check = 0
    archive, plain = _open_tar(path)
    with archive:
        for member in archive:
            parts = _parts(member.name)
            if _hidden(parts):
                continue
            if member.isdir():
                folders.add(parts)
            elif member.isreg() and parts[-1].lower().endswith(suffixes) and (only is None or parts in only):
                if plain and not member.issparse():
                    files[parts] = partial(_read_part, path, member.offset_data, member.size)
                    continue
                total += member.size
                if total >= next_check:  # asking the system for each of a million files would take minutes
                    ensure_fits(total, f"archive '{path}'")
                    next_check = total + CHECK_BYTES
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                files[parts] = partial(bytes, stream.read())
    return files, folders


def _open_tar(path: Path) -> tuple[tarfile.TarFile, bool]:
    """The archive, and whether it is not compressed."""
    try:
        return tarfile.open(path, "r:"), True
    except tarfile.ReadError:
        return tarfile.open(path), False


def _of_zip(
    path: Path, suffixes: tuple[str, ...], only: Collection[Parts] | None
) -> tuple[dict[Parts, Reader], set[Parts]]:
    files: dict[Parts, Reader] = {}
    folders: set[Parts] = set()
    archive = zipfile.ZipFile(path)  # open as long as there is a reader of it
    for info in archive.infolist():
        parts = _parts(info.filename)
        if _hidden(parts):
            continue
        if info.is_dir():
            folders.add(parts)
        elif parts[-1].lower().endswith(suffixes) and (only is None or parts in only):
            if info.flag_bits & _ENCRYPTED:
                raise zipfile.BadZipFile(f"file {info.filename!r} is encrypted")
            files[parts] = partial(_read_member, path, archive, info)
    return files, folders


def _read_part(path: Path, offset: int, size: int) -> bytes:
    _ensure_member_fits(path, size)
    with _sentences(path), path.open("rb") as file:
        file.seek(offset)
        found = file.read(size)
        if len(found) < size:
            raise EOFError("it is shorter than it was")
        return found


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    _ensure_member_fits(path, info.file_size)
    with _sentences(path):
        return archive.read(info)


def _ensure_member_fits(path: Path, size: int) -> None:
    """Raises `UserError` for a file that does not fit into memory, as a few packed bytes may claim to be."""
    if size > CHECK_BYTES:  # asking the system takes longer than reading a photograph
        ensure_fits(size, f"a file in archive '{path}'")


def _parts(name: str) -> Parts:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _hidden(parts: Parts) -> bool:
    """True if the path is no data: hidden files, and what macOS adds to archives."""
    return not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts)
