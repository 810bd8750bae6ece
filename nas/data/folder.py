"""Image folders, on disk or inside a tar or zip archive.

Accepted layouts (one enclosing folder may be around them)::

    train/<class>/*.jpg  val/<class>/*.jpg  [test/<class>/*.jpg]
    <class>/*.jpg

Archives are decoded from memory: nothing is extracted, so no member name can write outside a folder.
"""

import os
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path

import numpy as np

from nas.data.decode import IMAGE_SUFFIXES, Reader, decode_all, ensure_fits, shorter_side, stored_resolution
from nas.data.images import ImageSplit, RawImages
from nas.errors import UserError

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
_LAYOUT_HINT = "put the images in one folder per class: PATH/<class>/*.jpg or PATH/train/<class>/*.jpg and PATH/val/..."
_SIZE_SAMPLE = 256  # headers read to find the usual image size

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tree:
    """Files (how to read each) and folders by their path's parts."""

    files: dict[Parts, Reader]
    folders: set[Parts]

    def children(self) -> list[str]:
        """Names of the top-level folders, sorted."""
        return sorted({parts[0] for parts in self.folders})

    def below(self, name: str) -> "_Tree":
        return _Tree(
            {parts[1:]: read for parts, read in self.files.items() if parts[0] == name and len(parts) > 1},
            {parts[1:] for parts in self.folders if parts[0] == name and len(parts) > 1},
        )


def load_folder(path: Path, max_resolution: int) -> RawImages:
    """Load an image folder; see the module's docstring for the layouts.

    Raises:
        UserError: no images, no class folders, classes that differ between splits, an unreadable image (named).
    """
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
            if name.lower().endswith(IMAGE_SUFFIXES) and not _hidden((name,)):
                files[*parts, name] = Path(current, name).read_bytes
    return _load_tree(_Tree(files, folders), path, max_resolution)


def load_archive(path: Path, max_resolution: int) -> RawImages:
    """Load a tar (plain or compressed) or zip of an image folder; raises like `load_folder`."""
    read = _read_zip if path.name.lower().endswith(".zip") else _read_tar
    try:
        contents, folders = read(path)
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
    return _load_tree(_Tree({k: partial(bytes, v) for k, v in contents.items()}, folders), path, max_resolution)


def _read_tar(path: Path) -> tuple[dict[Parts, bytes], set[Parts]]:
    contents: dict[Parts, bytes] = {}
    folders: set[Parts] = set()
    total = 0
    with tarfile.open(path) as archive:
        for member in archive:
            parts = _parts(member.name)
            if _hidden(parts):
                continue
            if member.isdir():
                folders.add(parts)
            elif member.isreg() and parts[-1].lower().endswith(IMAGE_SUFFIXES):
                total += member.size
                ensure_fits(total, f"archive '{path}'")
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                contents[parts] = stream.read()
    return contents, folders


def _read_zip(path: Path) -> tuple[dict[Parts, bytes], set[Parts]]:
    contents: dict[Parts, bytes] = {}
    folders: set[Parts] = set()
    with zipfile.ZipFile(path) as archive:
        ensure_fits(sum(info.file_size for info in archive.infolist()), f"archive '{path}'")
        for info in archive.infolist():
            parts = _parts(info.filename)
            if _hidden(parts):
                continue
            if info.is_dir():
                folders.add(parts)
            elif parts[-1].lower().endswith(IMAGE_SUFFIXES):
                contents[parts] = archive.read(info)
    return contents, folders


def _parts(name: str) -> Parts:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _hidden(parts: Parts) -> bool:
    """Whether the path is no data: hidden files, and what macOS adds to archives."""
    return not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts)


def _load_tree(tree: _Tree, path: Path, max_resolution: int) -> RawImages:
    where = str(path)
    if not tree.files:
        raise UserError(f"no images in '{path}' (looked for {', '.join(IMAGE_SUFFIXES)})", _LAYOUT_HINT)
    tops = tree.children()
    while len(tops) == 1 and tops[0].lower() not in _SPLIT_NAMES and tree.below(tops[0]).folders:
        where, tree = f"{where}/{tops[0]}", tree.below(tops[0])
        tops = tree.children()
    if not tops:
        raise UserError(f"'{where}' has images but no class folders", _LAYOUT_HINT)
    found = {_SPLIT_NAMES[top.lower()]: top for top in tops if top.lower() in _SPLIT_NAMES}
    if found and "train" not in found:
        raise UserError(f"'{where}' has a folder {next(iter(found.values()))!r} but none named 'train'", _LAYOUT_HINT)
    parts = {split: (f"{where}/{top}", tree.below(top)) for split, top in found.items()} or {"train": (where, tree)}

    train_where, train = parts["train"]
    classes = tuple(train.children())
    if not classes:
        raise UserError(f"'{train_where}' has no class folders", _LAYOUT_HINT)
    for split_where, split in parts.values():
        _check_classes(classes, train_where, split, split_where)

    readers = sorted(train.files.items(), key=lambda item: item[0])[:: max(1, len(train.files) // _SIZE_SAMPLE)]
    sides = [shorter_side(read, f"{train_where}/{'/'.join(name)}") for name, read in readers]
    size = stored_resolution(sides, max_resolution)
    splits = {split: _decode_split(part, where, classes, size) for split, (where, part) in parts.items()}
    return RawImages(classes, splits["train"], splits.get("val"), splits.get("test"))


def _check_classes(classes: tuple[str, ...], train_where: str, split: _Tree, where: str) -> None:
    """Raise UserError where `split` has other classes than train, or a class without images."""
    names = set(split.children())
    if names != set(classes):
        missing, extra = sorted(set(classes) - names), sorted(names - set(classes))
        difference = " and ".join(
            f"{verb} {', '.join(map(repr, which))}" for verb, which in (("lacks", missing), ("adds", extra)) if which
        )
        raise UserError(
            f"'{where}' has other classes than '{train_where}': it {difference}", "give both the same class folders"
        )
    filled = {parts[0] for parts in split.files if len(parts) > 1}
    if empty := sorted(names - filled):
        raise UserError(f"class folder '{where}/{empty[0]}' has no images", "add images to it or remove the folder")


def _decode_split(split: _Tree, where: str, classes: tuple[str, ...], size: int) -> ImageSplit:
    # Sorted, so that the order never depends on the file system or on how the archive was made.
    items = sorted(((p, r) for p, r in split.files.items() if len(p) > 1), key=lambda item: item[0])
    index = {name: label for label, name in enumerate(classes)}
    images = decode_all([read for _, read in items], [f"{where}/{'/'.join(parts)}" for parts, _ in items], size)
    return ImageSplit(images, np.array([index[parts[0]] for parts, _ in items], np.int64))
