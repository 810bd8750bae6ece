"""The engine's errors; each names the offending value and says what to do next."""

from search_spaces.errors import UnknownNameError, UserError

__all__ = [
    "InfeasibleError",
    "LimitMissedError",
    "MissingDependencyError",
    "NotDeliverableError",
    "NotWorthItError",
    "UnknownNameError",
    "UserError",
]


class MissingDependencyError(UserError):
    """An optional library is absent; the hint is the command that installs it."""

    def __init__(self, what: str, install: str) -> None:
        super().__init__(f"{what} is not installed", f"run `{install}`")


class InfeasibleError(UserError):
    """No network of the space can keep the limit on the target (exit code 3)."""

    exit_code = 3


class LimitMissedError(UserError):
    """A network was found, but none kept the limit when its exported file was re-measured (exit code 3)."""

    exit_code = 3


class NotWorthItError(UserError):
    """A network keeps the limits, but is no better than what can be had without a network (exit code 3)."""

    exit_code = 3


class NotDeliverableError(UserError):
    """A network was exported, but no deployment of it is as good as was asked for (exit code 3)."""

    exit_code = 3
