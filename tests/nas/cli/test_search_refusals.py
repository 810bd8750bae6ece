"""What the real search refuses, in one sentence and before anything is written."""

from pathlib import Path

import pytest

from nas.cli.main import run


@pytest.mark.parametrize("more", [[], ["--resolution", "32"]])
def test_a_cell_space_is_refused(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["search", "--space", "nb201", "--target", "local", "--data", "digits", "--latency-ms", "5"]
    assert run([*command, "--budget", "1m", *more]) == 1
    captured = capsys.readouterr()
    assert "can be built and scored, not searched under a latency limit" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []
