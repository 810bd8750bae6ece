"""A place that cannot be written is refused before the work, and one process at a time works in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas.cli.main import run
from nas.errors import UserError
from nas.files.folders import check_writable, locked
from nas.measure import protocol
from nas.training.loop import Training
from tests.nas.small_bundles import save_pair
from tests.nas.small_runs import small_description, write_data, write_run
from tests.nas.tiny import write_tiny_network


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "not" / "yet")
    check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written to: Not a directory"):
        check_writable(tmp_path / "file" / "below")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc: nothing that even root cannot write")
@pytest.mark.parametrize(
    "command",
    [
        ["search", "--latency-ms", "5", "--data", "digits", "--out", "/proc/x"],
        ["profile", "local", "--out", "/proc/x/profile.json"],
        ["profile", "local", "--import-kit", "absent.json", "--out", "/proc/x/profile.json"],
        ["finetune", "RUN", "--out", "/proc/x"],
        ["export", "PAIR", "--data", "digits", "--out", "/proc/x"],
        ["bench", "ONNX", "--plot", "/proc/x.html"],
    ],
    ids=lambda command: " ".join(command[:1] + command[-2:-1]),
)
def test_every_command_looks_before_it_works(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: object, **__: object) -> None:
        pytest.fail("it has begun")

    monkeypatch.setattr(protocol, "run_worker", work)
    monkeypatch.setattr(Training, "run", work)
    names = {
        "RUN": write_run(tmp_path / "run", small_description(), write_data(tmp_path / "data.npz")),
        "PAIR": save_pair(tmp_path),
        "ONNX": write_tiny_network(tmp_path / "tiny.onnx"),
    }
    assert run([str(names.get(word, word)) for word in command] + ["--quiet"]) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert "/proc" in error
    assert "cannot be written" in error
    assert hint == "hint: name a folder you may write to"


def test_one_process_per_folder(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from nas.files.folders import locked\n"
        "with locked(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        with pytest.raises(UserError, match=f"process {other.pid} on"), locked(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()
