"""Tasks by name or reference, and the one that data belong to. The rest of the engine knows only `Task`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nas.errors import UnknownNameError, UserError
from nas.tasks.baseline import BaselineNetwork
from nas.tasks.classification.task import Classification
from nas.tasks.detection.task import Detection
from nas.tasks.pose.task import Pose
from nas.tasks.task import OfProducts, Task, TaskData, TaskSplit, TrainingShape
from nas.tasks.text.task import TextClassification
from search_spaces.reference import imported

__all__ = [
    "TASKS",
    "BaselineNetwork",
    "Task",
    "TaskData",
    "TaskSplit",
    "TrainingShape",
    "baseline_named",
    "task_named",
    "task_of",
    "task_of_baseline",
    "tries_dynamic_int8",
]

TASKS: Mapping[str, Task[Any, Any]] = MappingProxyType(
    {task.name: task for task in (Classification(), Detection(), Pose(), TextClassification())}
)
"""The bundled tasks by name."""

_MEMBERS = frozenset(name for name in vars(Task) if not name.startswith("_"))


def task_named(reference: str) -> Task[Any, Any]:
    """The task that `reference` names: a key of `TASKS`, or `package.module:ATTRIBUTE` of an installed package.

    A reference imports that module and so runs its code. It is resolved here alone, for the command line, run folders,
    bundles and worker processes.

    Raises:
        UserError: no such module or attribute, or it is no task; an unknown name is an `UnknownNameError`.
    """
    if reference in TASKS:
        return TASKS[reference]
    if ":" not in reference:
        raise UnknownNameError("task", reference, TASKS)
    hint = f"write package.module:ATTRIBUTE of an installed package, or one of {', '.join(TASKS)}"
    found: Task[Any, Any] = imported(reference, "task", hint)
    lacking = sorted(name for name in _MEMBERS if not hasattr(found, name))
    if lacking:
        raise UserError(f"{reference!r} is no task: it has no {', '.join(lacking)}", hint)
    return found


def task_of(data: TaskData) -> Task[Any, Any]:
    """The task that `data` belong to."""
    return task_named(data.task)


def tries_dynamic_int8(reference: str) -> bool:
    """True if networks of the task that `reference` names are tried in `nas.deployment.DYNAMIC_INT8` too; raises as
    `task_named`."""
    task: Any = task_named(reference)
    return isinstance(task, OfProducts) and task.dynamic_int8


def baseline_named(name: str) -> BaselineNetwork:
    """The well-known network `name`, of any task; raises as `task_of_baseline`."""
    return task_named(task_of_baseline(name)).baselines[name]


def task_of_baseline(name: str) -> str:
    """Reference of the task whose `baselines` have `name`.

    Raises:
        UserError: there is no such network (`UnknownNameError`), or no such task.
    """
    reference, slash, _ = name.rpartition("/")
    tasks = (reference,) if slash else tuple(TASKS)
    for task in tasks:
        if name in task_named(task).baselines:
            return task
    raise UnknownNameError("network", name, [key for task in tasks for key in task_named(task).baselines])
