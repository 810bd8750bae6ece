"""The console script `nas`: finds the command, and turns what goes wrong into a sentence and an exit code.

Nothing heavy is imported here or at the top of a command's module: `nas --help` has to answer at once.
"""

import importlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence

import click

from nas import __version__
from nas.cli.shell import Shell
from nas.machine import restart_with_kept_memory

COMMANDS: Mapping[str, str] = {
    "search": "nas.cli.search:search",
    "finetune": "nas.cli.finetune:finetune",
    "recipes": "nas.cli.recipes:recipes",
    "export": "nas.cli.export:export",
    "predict": "nas.cli.predict:predict",
    "targets": "nas.cli.targets:targets",
    "profile": "nas.cli.profile:profile",
    "bench": "nas.cli.bench:bench",
    "compare": "nas.cli.compare:compare",
    "advise": "nas.cli.advise:advise",
    "serve": "nas.cli.serve:serve",
    "report": "nas.cli.report:report",
    "cache": "nas.cli.cache:cache",
}
"""Command -> where it lives, in the order `nas --help` shows them. A new command is one file and one line here."""

TRAINING = ["search"], ["finetune"]
"""Command lines that begin so train networks."""
HELP = ("-h", "--help")


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": list(HELP), "max_content_width": 100})
@click.version_option(__version__, prog_name="nas")
def cli() -> None:
    """Find the most accurate network under a latency limit, measured on the device it will run on.

    \b
    Example:
      nas search --target local --latency-ms 10 --data digits --budget 3m

    Exit codes: 0 done, 1 bad input, 2 wrong usage, 3 limit infeasible or missed, 130 interrupted.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit code.

    An unexpected exception is a bug and passes through with its traceback.
    """
    shell = Shell(command=shlex.join(["nas", *arguments]))
    try:
        code = cli.main(list(arguments), prog_name="nas", standalone_mode=False, obj=shell)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted." + (f" To continue, run: {shell.resume}" if shell.resume else ""), err=True)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone; keep the interpreter from failing again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if not _is_full_disk(error):
            raise
        click.echo(f"Error: cannot write{f' {error.filename!r}' if error.filename else ''}: {error.strerror}", err=True)
        click.echo("hint: make room, then run the same command again", err=True)
        return 1
    except _user_error() as error:
        click.echo(f"Error: {error}", err=True)
        hint = getattr(error, "hint", None)
        if hint:
            click.echo(f"hint: {hint}", err=True)
        return int(getattr(error, "exit_code", 1))
    return code if isinstance(code, int) else 0


def _is_full_disk(error: OSError) -> bool:
    from nas.files.folders import NO_ROOM

    return error.errno in NO_ROOM


def _user_error() -> type[Exception]:
    """`UserError`, imported when there is an exception to compare with: its package brings numpy."""
    from search_spaces.errors import UserError

    return UserError


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] in TRAINING:
        restart_with_kept_memory()
    if sys.argv[1:2] and sys.argv[1] in COMMANDS and not set(HELP).intersection(sys.argv):
        from nas.cli.code import allow_code  # brings numpy
        from nas.files.cache import user_cache

        allow_code(sys.argv[1:], user_cache())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite request to end is answered like Ctrl-C
    sys.exit(run(sys.argv[1:]))
