"""What is learned: tasks by name, and which of them data belong to. The rest of the engine knows only `Task`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nas.errors import UnknownNameError
from nas.tasks.classification.task import Classification
from nas.tasks.detection.task import Detection
from nas.tasks.task import Task, TaskData, TaskSplit, TrainingShape
from nas.tasks.zoo import ZooModel

__all__ = ["TASKS", "Task", "TaskData", "TaskSplit", "TrainingShape", "task_named", "task_of", "zoo_model"]

TASKS: Mapping[str, Task[Any, Any]] = MappingProxyType({task.name: task for task in (Classification(), Detection())})
"""Every task by name."""


def task_named(name: str) -> Task[Any, Any]:
    """The task `name`; raises `UnknownNameError` with the closest known names."""
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]


def task_of(data: TaskData) -> Task[Any, Any]:
    """The task that `data` belong to."""
    return TASKS[data.task]


def zoo_model(name: str) -> ZooModel:
    """The well-known network `name` of any task; raises `UnknownNameError` with the closest known names."""
    known = {key: model for task in TASKS.values() for key, model in task.zoo.items()}
    if name not in known:
        raise UnknownNameError("network", name, known)
    return known[name]
