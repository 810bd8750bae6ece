"""A data set as plain array files that worker processes map into memory: stored once, however many there are."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.data import ImageData, ImageSplit, Preprocess

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedData:
    """Where the arrays of a data set lie, and all else there is to know about it. `load` gives it back."""

    folder: Path
    name: str
    classes: tuple[str, ...]
    native_resolution: int
    preprocess: Preprocess
    flip_ok: bool

    def load(self) -> ImageData:
        """The data, mapped copy-on-write: pages are shared with every other process until one is written to."""
        train, val, test = map(self._split, _SPLITS)
        return ImageData(
            name=self.name,
            classes=self.classes,
            train=train,
            val=val,
            test=test,
            native_resolution=self.native_resolution,
            preprocess=self.preprocess,
            flip_ok=self.flip_ok,
        )

    def _split(self, name: str) -> ImageSplit:
        images = np.load(self.folder / f"{name}-images.npy", mmap_mode="c", allow_pickle=False)
        return ImageSplit(images, np.load(self.folder / f"{name}-labels.npy", allow_pickle=False))


def share(data: ImageData, folder: Path) -> SharedData:
    """Write the arrays of `data` into `folder`, replacing what an earlier run may have left there."""
    shutil.rmtree(folder, ignore_errors=True)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in _SPLITS:
        split: ImageSplit = getattr(data, name)
        np.save(partial / f"{name}-images.npy", split.images, allow_pickle=False)
        np.save(partial / f"{name}-labels.npy", split.labels, allow_pickle=False)
    os.replace(partial, folder)
    return SharedData(
        folder=folder.absolute(),
        name=data.name,
        classes=data.classes,
        native_resolution=data.native_resolution,
        preprocess=data.preprocess,
        flip_ok=data.flip_ok,
    )
