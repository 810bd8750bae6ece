"""Data sets that torchvision reads from plain image files or plain arrays (never those it unpickles)."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nas.data.decode import MIN_RESOLUTION, ensure_fits, run_in_threads, square, usual_size
from nas.data.images import ImageSplit, RawImages
from nas.data_options import DataOptions, Fit
from nas.errors import UserError

SIZED = 32
"""Pictures looked at to find their usual size."""


def download(url: str, md5: str, root: Path, expected: Path) -> None:
    """Download and unpack an archive into `root`, after which the folder `expected` exists.

    Raises:
        UserError: no network, or a wrong checksum; the hint says where to put the files by hand.
    """
    from torchvision.datasets.utils import download_and_extract_archive

    try:
        download_and_extract_archive(url, str(root), md5=md5)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; a wrong checksum is a RuntimeError
        raise UserError(
            f"cannot download {url}: {error}", f"download it by hand and unpack it so that '{expected}' exists"
        ) from error


def _fetch(name: str, make: Callable[..., Any], root: Path) -> Any:
    """The torchvision data set in `root`, downloaded only where it is not there yet."""
    try:
        return make(root=str(root), download=False)
    except (RuntimeError, FileNotFoundError):  # how torchvision says "not there"
        pass
    try:
        return make(root=str(root), download=True)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"cannot download data set {name!r}: {error}",
            f"put the files that torchvision.datasets.{make.func.__name__} expects into '{root}', "  # type: ignore[attr-defined]
            "or give a folder with your own images",
        ) from error


def _split(name: str, source: Any, size: int, fit: Fit) -> ImageSplit:
    ensure_fits(len(source) * size * size * 3, f"data set {name!r} at {size} px")
    images = np.empty((len(source), size, size, 3), np.uint8)
    labels = np.empty(len(source), np.int64)

    def read(index: int) -> None:
        try:
            image, label = source[index]
            images[index] = square(image, size, fit)
        except (OSError, SyntaxError, ValueError) as error:
            raise UserError(
                f"cannot read image {index} of data set {name!r}: {error}", "delete its files and load it again"
            ) from error
        labels[index] = label

    run_in_threads(read, len(source))
    return ImageSplit(images, labels)


def _class_names(source: Any) -> tuple[str, ...]:
    # Imagenette lists synonyms per class
    return tuple(c[0] if isinstance(c, tuple) else str(c) for c in source.classes)


def load_torchvision(
    root: Path,
    options: DataOptions,
    *,
    name: str,
    dataset: str,
    resolution: int,
    side: int,
    splits: Mapping[str, Mapping[str, object]],
) -> RawImages:
    """A set that `torchvision.datasets.<dataset>` reads.

    Args:
        root: where the files are, or are downloaded to.
        options: how they are read.
        name: for messages.
        dataset: torchvision's name.
        resolution: stored resolution, where the options ask for no other.
        side: shorter side of the images as published, in pixels: the highest resolution that can be asked for.
        splits: for each split of ours ("train", "val", "test"; missing ones are held out) torchvision's arguments.
    """
    from torchvision import datasets

    make = getattr(datasets, dataset)
    sources = {split: _fetch(name, partial(make, **arguments), root) for split, arguments in splits.items()}
    size, fit = min(max(side, MIN_RESOLUTION), options.cap(resolution)), options.fit or "crop"
    loaded = {split: _split(name, source, size, fit) for split, source in sources.items()}
    train = sources["train"]
    pictures = [train[i][0] for i in range(0, len(train), max(1, len(train) // SIZED))]
    return RawImages(
        _class_names(train), loaded["train"], loaded.get("val"), loaded.get("test"),
        picture_size=usual_size([(picture.height, picture.width) for picture in pictures]), framing=fit,
    )  # fmt: skip
