"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from their *binary* distribution.

torchvision reads the Python distribution, which is pickled; unpickling a file can run code, so it is not used here.
A record is one label byte (CIFAR-100: coarse, then fine) and 3 x 32 x 32 bytes, channels first.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.data.images import ImageSplit, RawImages
from nas.data_options import DataOptions
from nas.errors import UserError
from nas.tasks.classification.data.torchvision_sets import download

_URL = "https://www.cs.toronto.edu/~kriz/"
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, slots=True)
class _Layout:
    archive: str
    md5: str
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    label_bytes: int  # the last one is the label


_CIFAR10 = _Layout(
    archive="cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test="test_batch.bin",
    names="batches.meta.txt",
    label_bytes=1,
)
_CIFAR100 = _Layout(
    archive="cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    folder="cifar-100-binary",
    train=("train.bin",),
    test="test.bin",
    names="fine_label_names.txt",
    label_bytes=2,
)


def load_cifar10(root: Path, options: DataOptions) -> RawImages:
    """CIFAR-10 at 32 px: 50,000 train and 10,000 test images of ten classes."""
    return _load(_CIFAR10, root, options)


def load_cifar100(root: Path, options: DataOptions) -> RawImages:
    """CIFAR-100 at 32 px: 50,000 train and 10,000 test images, the hundred fine classes."""
    return _load(_CIFAR100, root, options)


def _load(layout: _Layout, root: Path, options: DataOptions) -> RawImages:
    folder = root / layout.folder
    if not folder.is_dir():
        download(_URL + layout.archive, layout.md5, root, expected=folder)
    classes = tuple(_read(folder / layout.names).decode("ascii", errors="replace").split())
    train = np.concatenate([_records(folder / name, layout, len(classes)) for name in layout.train])
    test = _records(folder / layout.test, layout, len(classes))
    return RawImages(classes, _split(train, layout), test=_split(test, layout), framing=options.fit or "crop")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read '{path}': {error.strerror}",
            f"unpack the binary version ({_URL}, '*-binary.tar.gz') there; the Python version is pickled and not read",
        ) from error


def _records(path: Path, layout: _Layout, classes: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    record = layout.label_bytes + _PIXELS
    content = np.frombuffer(_read(path), np.uint8)
    if len(content) == 0 or len(content) % record:
        raise UserError(f"'{path}' is not a whole number of {record}-byte records", "delete the folder and load again")
    rows = content.reshape(-1, record)
    if rows[:, layout.label_bytes - 1].max() >= classes:
        raise UserError(f"'{path}' has labels above {classes - 1}", "delete the folder and load again")
    return rows


def _split(rows: np.ndarray[tuple[int, int], np.dtype[np.uint8]], layout: _Layout) -> ImageSplit:
    pixels = rows[:, layout.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ImageSplit(np.ascontiguousarray(pixels), rows[:, layout.label_bytes - 1].astype(np.int64))
