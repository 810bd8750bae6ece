"""The shell around all commands: start-up, errors as sentences, exit codes."""

import errno
import subprocess
import sys
import time

import click
import pytest

from nas import __version__
from nas.cli import main as main_module
from nas.cli.main import COMMANDS, cli, run
from nas.cli.shell import Shell
from nas.errors import InfeasibleError, UnknownNameError


def use_command(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    """Make `command` the only one, as `nas it`."""
    monkeypatch.setattr(main_module, "COMMANDS", {"it": f"{__name__}:it"})
    monkeypatch.setattr(sys.modules[__name__], "it", command, raising=False)


def failing(error: BaseException) -> click.Command:
    @click.command()
    def it() -> None:
        raise error

    return it


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from nas.cli.main import run; run(['--help']); run(['search', '--help']);"
        "print(sorted({'torch', 'numpy', 'pandas', 'optuna', 'rich', 'onnx', 'plotly', 'ray'} & set(sys.modules)))"
    )
    best = float("inf")
    for _ in range(3):  # a busy machine may delay one start, not three
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        best = min(best, time.perf_counter() - start)
        assert done.stdout.splitlines()[-1] == "[]"
    assert best < 0.5


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:\n" in text
    assert f"  nas {name}" in text


def test_help_lists_every_command_untruncated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "..." not in text[text.index("Commands:") :]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["serach"], ["search", "--latency-ms", "4", "--top", "9"], ["--no"]])
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Error: " in shown.err


def test_user_error_is_a_sentence_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_command(monkeypatch, failing(UnknownNameError("target", "xeon-sbr", ["xeon-spr", "local"])))
    assert run(["it"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "Error: unknown target 'xeon-sbr' (known: local, xeon-spr)",
        "hint: did you mean 'xeon-spr'?",
    ]


def test_infeasible_limit_exits_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use_command(monkeypatch, failing(InfeasibleError("no network keeps 0.01 ms", "the nearest limit is 0.2 ms")))
    assert run(["it"]) == 3
    assert "hint: the nearest limit is 0.2 ms" in capsys.readouterr().err


def test_a_full_disk_is_a_sentence_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_command(monkeypatch, failing(OSError(errno.ENOSPC, "No space left on device", "model.onnx")))
    assert run(["it"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "Error: cannot write 'model.onnx': No space left on device",
        "hint: make room, then run the same command again",
    ]
    use_command(monkeypatch, failing(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")))
    with pytest.raises(FileNotFoundError):
        run(["it"])


def test_unexpected_exception_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    use_command(monkeypatch, failing(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        run(["it"])


def test_interrupt_exits_130_and_names_the_command_that_resumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @click.argument("where")
    @click.pass_obj
    def it(shell: Shell, where: str) -> None:
        shell.resume = shell.command
        raise KeyboardInterrupt

    use_command(monkeypatch, it)
    assert run(["it", "my run"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "Interrupted. To continue, run: nas it 'my run'"


def test_exit_code_of_a_command_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def it(context: click.Context) -> None:
        context.exit(3)

    use_command(monkeypatch, it)
    assert run(["it"]) == 3


def test_reader_that_goes_away_leaves_no_traceback() -> None:
    code = (
        "import sys, click; from nas.cli import main as m;"
        "m.cli.add_command(click.Command('it', callback=lambda: [click.echo('x' * 100) for _ in range(9999)]));"
        "m.LazyGroup.get_command = lambda self, ctx, name: self.commands[name];"
        "sys.exit(m.run(['it']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=20) == 1


def test_group_is_a_click_group_that_tools_can_read() -> None:
    assert cli.list_commands(click.Context(cli)) == list(COMMANDS)
