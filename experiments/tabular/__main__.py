"""Predictors on other people's tables: `python -m experiments.tabular COMMAND ...`, one module per command."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from search_spaces.errors import UserError

COMMANDS: Mapping[str, str] = {
    "latency": "experiments.tabular.commands.latency",
    "transfer": "experiments.tabular.commands.transfer",
    "accuracy": "experiments.tabular.commands.accuracy",
    "search": "experiments.tabular.commands.search",
}
"""Command to the module whose `command` it is; a module is imported when its command is asked for."""


class TabularGroup(click.Group):
    """Imports a command when it is used, and prints what a user did wrong as a sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command object of a module, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=TabularGroup)
def cli() -> None:
    """Judge the predictors on tables (.npz) of measured networks: random training rows, all the others are the test."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, 1 for a wrong input, 2 for wrong usage."""
    try:
        code = cli.main(args=arguments, prog_name="python -m experiments.tabular", standalone_mode=False)
    except UserError as error:
        click.echo(f"Error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
