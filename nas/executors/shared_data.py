"""A data set as plain array files that worker processes map into memory: stored once, however many there are."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nas.files.writing import staged_folder
from nas.tasks import Task, TaskData, TaskSplit, task_named, task_of

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedData:
    """Where the arrays of a data set lie, and all else there is to know about it. `load` gives it back."""

    folder: Path
    task: str
    facts: Mapping[str, Any]
    """See `nas.tasks.task.Task.facts`."""
    arrays: tuple[str, ...]
    """Names of the arrays of each split."""

    def load(self) -> TaskData:
        """The data, arrays mapped copy-on-write: pages are shared with every other process until one is written to."""
        task = task_named(self.task)
        data: TaskData = task.data_of(**{name: self._split(task, name) for name in _SPLITS}, **self.facts)
        return data

    def _split(self, task: "Task[TaskData, TaskSplit]", split: str) -> TaskSplit:
        files = {name: _file(self.folder, split, name) for name in self.arrays}
        return task.split_of({n: np.load(f, mmap_mode="c", allow_pickle=False) for n, f in files.items()})


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
    return SharedData(folder=folder.absolute(), task=data.task, facts=task.facts(data), arrays=names)


def _file(folder: Path, split: str, array: str) -> Path:
    return folder / f"{split}-{array}.npy"
