"""The side of a data set's images, from a look at one of them: before everything is loaded, and never an error."""

import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from lzma import LZMAError
from pathlib import Path

import numpy as np
from PIL import Image

from nas.data.decode import IMAGE_SUFFIXES
from nas.data.tree import ARCHIVE_SUFFIXES
from nas.tasks.classification.data.registry import DATASETS

_UNREADABLE = (
    *(OSError, ValueError, KeyError, StopIteration, EOFError, RuntimeError, Image.DecompressionBombError),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError),
)


def image_side(name_or_path: str) -> int | None:
    """The shorter side, in pixels, of an image of the data that `load_dataset` takes by this name; None: not known.

    Data that cannot be read are for `load_dataset` to refuse.
    """
    if name_or_path in DATASETS:
        return DATASETS[name_or_path].side
    path = Path(name_or_path).expanduser()
    try:
        if path.is_dir():
            return _side_of(_first_file(path))
        if path.name.lower().endswith(".npz"):
            return _side_in_npz(path)
        if path.name.lower().endswith(ARCHIVE_SUFFIXES):
            return _side_of(BytesIO(next(_members(path))))
    except _UNREADABLE:
        return None
    return None


def _side_of(image: "Path | BytesIO") -> int:
    with Image.open(image) as opened:
        return min(opened.size)


def _first_file(folder: Path) -> Path:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.lower().endswith(IMAGE_SUFFIXES):
                return Path(parent) / name
    raise FileNotFoundError(folder)


def _members(path: Path) -> Iterator[bytes]:
    """The images in an archive, in its order."""
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.lower().endswith(IMAGE_SUFFIXES):
                    yield archive.read(name)
        return
    with tarfile.open(path) as tape:
        for member in tape:
            file = tape.extractfile(member) if member.name.lower().endswith(IMAGE_SUFFIXES) else None
            if file is not None:
                yield file.read()


def _side_in_npz(path: Path) -> int:
    """From the header of `x_train` alone."""
    with zipfile.ZipFile(path) as archive, archive.open("x_train.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, _ = read(file)
    _, height, width, _ = shape
    return int(min(height, width))
