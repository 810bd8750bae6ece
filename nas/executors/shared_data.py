"""A data set as plain array files that worker processes map into memory: stored once, however many there are."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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

    def load(self) -> TaskData:
        """The data, arrays mapped copy-on-write: pages are shared with every other process until one is written to."""
        return self.empty.with_splits(**{name: self._split(name) for name in _SPLITS})

    def _split(self, split: str) -> TaskSplit:
        files = {name: _file(self.folder, split, name) for name in self.arrays}
        arrays = {name: np.load(file, mmap_mode="c", allow_pickle=False) for name, file in files.items()}
        found: TaskSplit = task_of(self.empty).split_of(arrays)
        return found


def share(data: TaskData, folder: Path) -> SharedData:
    """Write the arrays of `data` into `folder`, replacing what an earlier run may have left there."""
    task = task_of(data)
    shutil.rmtree(folder, ignore_errors=True)  # first: there may not be room for both
    names: tuple[str, ...] = ()
    with staged_folder(folder) as staged:
        for split in _SPLITS:
            arrays = task.arrays(getattr(data, split))
            names = tuple(arrays)
            for name, array in arrays.items():
                np.save(_file(staged, split, name), array, allow_pickle=False)
    empty = data.with_splits(train=data.train.take([]), val=data.val.take([]), test=data.test.take([]))
    return SharedData(folder=folder.absolute(), empty=empty, arrays=names)


def without_files(data: TaskData) -> TaskData:
    """The data as their arrays alone: what refers to files of this machine stays here."""
    task = task_of(data)
    return data.with_splits(**{split: task.split_of(task.arrays(getattr(data, split))) for split in _SPLITS})


def _file(folder: Path, split: str, array: str) -> Path:
    return folder / f"{split}-{array}.npy"
