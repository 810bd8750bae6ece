"""A data set as plain array files that worker processes map into memory: stored once, however many there are."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.data.images import Preprocess
from nas.files.writing import staged_folder
from nas.tasks import Task, TaskData, TaskSplit, task_named, task_of

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedData:
    """Where the arrays of a data set lie, and all else there is to know about it. `load` gives it back."""

    folder: Path
    task: str
    name: str
    classes: tuple[str, ...]
    native_resolution: int
    preprocess: Preprocess
    flip_ok: bool

    def load(self) -> TaskData:
        """The data, images mapped copy-on-write: pages are shared with every other process until one is written to."""
        task = task_named(self.task)
        data: TaskData = task.data_of(
            name=self.name,
            classes=self.classes,
            **{name: self._split(task, name) for name in _SPLITS},
            native_resolution=self.native_resolution,
            preprocess=self.preprocess,
            flip_ok=self.flip_ok,
        )
        return data

    def _split(self, task: "Task[TaskData, TaskSplit]", name: str) -> TaskSplit:
        images = np.load(self.folder / f"{name}-images.npy", mmap_mode="c", allow_pickle=False)
        with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
            return task.split_of(images, dict(arrays))


def share(data: TaskData, folder: Path) -> SharedData:
    """Write the arrays of `data` into `folder`, replacing what an earlier run may have left there."""
    task = task_of(data)
    shutil.rmtree(folder, ignore_errors=True)  # first: there may not be room for both
    with staged_folder(folder) as staged:
        for name in _SPLITS:
            split: TaskSplit = getattr(data, name)
            np.save(staged / f"{name}-images.npy", split.images, allow_pickle=False)
            np.savez(staged / f"{name}.npz", allow_pickle=False, **task.arrays(split))
    return SharedData(
        folder=folder.absolute(),
        task=data.task,
        name=data.name,
        classes=data.classes,
        native_resolution=data.native_resolution,
        preprocess=data.preprocess,
        flip_ok=data.flip_ok,
    )
