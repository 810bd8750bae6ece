"""The files of a data set, in a folder on disk or inside a tar or zip archive.

Archives are read into memory: nothing is extracted, so no member name can write outside a folder.
"""

import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
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
"""Read so much of an archive before looking again whether it fits into memory."""


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

    Raises:
        UserError: a damaged archive, one with a password, or one that does not fit into memory.
    """
    read = _read_zip if path.name.lower().endswith(".zip") else _read_tar
    try:
        contents, folders = read(path, suffixes, only)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError, RuntimeError) as error:
        # RuntimeError is what zipfile raises for an encrypted member
        reason = (str(error).splitlines() or ["it is damaged"])[0].rstrip(":")  # tarfile lists every attempt
        raise UserError(
            f"cannot read archive '{path}': {reason}",
            "make it again with `tar -cf` or `zip -r`, without a password",
        ) from error
    # An archive need not have entries for its folders.
    for parts in contents:
        folders.update(parts[:depth] for depth in range(1, len(parts)))
    return Tree({k: partial(bytes, v) for k, v in contents.items()}, folders, path.absolute())


def _read_tar(
    path: Path, suffixes: tuple[str, ...], only: Collection[Parts] | None
) -> tuple[dict[Parts, bytes], set[Parts]]:
    contents: dict[Parts, bytes] = {}
    folders: set[Parts] = set()
    total = next_check = 0
    with tarfile.open(path) as archive:
        for member in archive:
            parts = _parts(member.name)
            if _hidden(parts):
                continue
            if member.isdir():
                folders.add(parts)
            elif member.isreg() and parts[-1].lower().endswith(suffixes) and (only is None or parts in only):
                total += member.size
                if total >= next_check:  # asking the system for each of a million files would take minutes
                    ensure_fits(total, f"archive '{path}'")
                    next_check = total + CHECK_BYTES
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                contents[parts] = stream.read()
    return contents, folders


def _read_zip(
    path: Path, suffixes: tuple[str, ...], only: Collection[Parts] | None
) -> tuple[dict[Parts, bytes], set[Parts]]:
    contents: dict[Parts, bytes] = {}
    folders: set[Parts] = set()
    with zipfile.ZipFile(path) as archive:
        wanted = (info for info in archive.infolist() if only is None or _parts(info.filename) in only)
        ensure_fits(sum(info.file_size for info in wanted), f"archive '{path}'")
        for info in archive.infolist():
            parts = _parts(info.filename)
            if _hidden(parts):
                continue
            if info.is_dir():
                folders.add(parts)
            elif parts[-1].lower().endswith(suffixes) and (only is None or parts in only):
                contents[parts] = archive.read(info)
    return contents, folders


def _parts(name: str) -> Parts:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _hidden(parts: Parts) -> bool:
    """True if the path is no data: hidden files, and what macOS adds to archives."""
    return not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts)
