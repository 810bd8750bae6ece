"""The space that is searched where none was asked for."""

from nas.errors import UnknownNameError
from nas.tasks import task_named
from search_spaces import resolve_space


def usual_space(task_reference: str, data: str, target_name: str) -> str:
    """Reference of the space that a search of a task takes for such data.

    The task's own for images like these, unless the target's profile has never seen its blocks and nothing can be
    measured here: then the task's default.
    """
    task = task_named(task_reference)
    wanted = task.space_for(data)
    if wanted == task.default_space:
        return wanted
    from nas.targets.completing import missing_kinds
    from nas.targets.registry import load_target

    try:
        target = load_target(target_name, task=task_reference)
    except UnknownNameError:  # a machine of a cluster, or a name for others to refuse
        return wanted
    if target.is_host or target.profile is None:
        return wanted
    return task.default_space if missing_kinds(target.profile, resolve_space(wanted)) else wanted
