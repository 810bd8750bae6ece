"""Code that the commands share with the function that runs them."""

from collections.abc import Collection
from dataclasses import dataclass

import click
from click.core import ParameterSource


@dataclass
class Shell:
    """The command line at work; click hands it to a command as `context.obj`."""

    command: str
    """The whole line as typed, quoted for a shell."""
    resume: str | None = None
    """A command sets the line that continues its work, to be shown when it is interrupted."""


def refuse_others(context: click.Context, option: str, known: Collection[str], why: str) -> None:
    """Raises `click.UsageError` where, beside `option`, others than the `known` were typed: they would do nothing.

    `known` holds options by their first name (`--data`), arguments by theirs (`model`).
    """
    typed = [
        parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    other = [name for name in typed if name not in (option, *known)]
    if other:
        raise click.UsageError(f"{option} takes no {', '.join(other)}: {why}")
