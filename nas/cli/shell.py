"""What the commands share with the function that runs them."""

from dataclasses import dataclass


@dataclass
class Shell:
    """The command line at work; click hands it to a command as `context.obj`."""

    command: str
    """The whole line as typed, quoted for a shell."""
    resume: str | None = None
    """A command sets the line that continues its work, to be shown when it is interrupted."""
