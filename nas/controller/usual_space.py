"""The space that is searched where none was asked for."""

from nas.errors import UnknownNameError
from nas.tasks import task_named
from search_spaces import resolve_space


def usual_space(task_reference: str, target_name: str) -> str:
    """Reference of the space that a search of a task takes for a target.

    The task's default, unless the target's profile has never seen its blocks and nothing can be measured here: then
    the task's fallback.
    """
    task = task_named(task_reference)
    if task.default_space == task.fallback_space:
        return task.default_space
    from nas.targets.completing import missing_kinds
    from nas.targets.registry import load_target

    try:
        target = load_target(target_name, task=task_reference)
    except UnknownNameError:  # a machine of a cluster, or a name for others to refuse
        return task.default_space
    if target.is_host or target.profile is None:
        return task.default_space
    unknown = missing_kinds(target.profile, resolve_space(task.default_space))
    return task.fallback_space if unknown else task.default_space
