"""A data set as plain array files that worker processes map into memory: stored once, however many there are.

Images that are in a file already stay there."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nas.data.decode import ensure_fits
from nas.data.stored import StoredImages
from nas.files.writing import staged_folder
from nas.tasks import TaskData, TaskSplit, task_of

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedData:
    """Place of the arrays of a data set, and the data set without its examples. `load` gives the whole back."""

    folder: Path
    empty: TaskData
    """The data set with splits that hold nothing."""
    arrays: tuple[str, ...]
    """Names of the arrays of each split."""
    stored: Mapping[str, Path]
    """Files of images by split and array (`train-images`); what stands in the array's own file are their rows there."""

    def load(self) -> TaskData:
        """The data, arrays mapped copy-on-write: pages are shared with every other process until one is written to."""
        return self.empty.with_splits(**{name: self._split(name) for name in _SPLITS})

    def _split(self, split: str) -> TaskSplit:
        arrays = {name: self._array(split, name) for name in self.arrays}
        found: TaskSplit = task_of(self.empty).split_of(arrays)
        return found

    def _array(self, split: str, name: str) -> Any:
        found = np.load(_file(self.folder, split, name), mmap_mode="c", allow_pickle=False)
        images = self.stored.get(f"{split}-{name}")
        return found if images is None else StoredImages(images, np.array(found))


def share(data: TaskData, folder: Path) -> SharedData:
    """Write the arrays of `data` into `folder`, replacing what an earlier run may have left there."""
    task = task_of(data)
    shutil.rmtree(folder, ignore_errors=True)  # first: there may not be room for both
    names: tuple[str, ...] = ()
    stored: dict[str, Path] = {}
    with staged_folder(folder) as staged:
        for split in _SPLITS:
            arrays = task.arrays(getattr(data, split))
            names = tuple(arrays)
            for name, array in arrays.items():
                if isinstance(array, StoredImages):
                    stored[f"{split}-{name}"], array = array.file, array.rows
                np.save(_file(staged, split, name), array, allow_pickle=False)
    empty = data.with_splits(train=data.train.take([]), val=data.val.take([]), test=data.test.take([]))
    return SharedData(folder=folder.absolute(), empty=empty, arrays=names, stored=stored)


def without_files(data: TaskData) -> TaskData:
    """The data as their arrays alone: what refers to files of this machine stays here.

    Raises:
        UserError: images that are in a file do not fit into memory.
    """
    task = task_of(data)
    arrays = {split: task.arrays(getattr(data, split)) for split in _SPLITS}
    on_disk = [array for found in arrays.values() for array in found.values() if isinstance(array, StoredImages)]
    ensure_fits(sum(array.nbytes for array in on_disk), f"sending {data.name} to other machines")
    whole = {split: {name: np.asarray(array) for name, array in found.items()} for split, found in arrays.items()}
    return data.with_splits(**{split: task.split_of(found) for split, found in whole.items()})


def _file(folder: Path, split: str, array: str) -> Path:
    return folder / f"{split}-{array}.npy"
