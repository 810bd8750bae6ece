"""`--device`: a GPU that this host lacks is refused in a sentence, before anything is written."""

from pathlib import Path

import pytest

from nas.cli.main import run

COMMANDS = {
    "profile": ["profile", "local"],
    "bench": ["bench", "torchvision:resnet18"],
    "search": ["search", "--latency-ms", "5", "--data", "digits"],
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nas.runtimes.devices.nvidia_device_present", lambda: False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_gpu_that_is_not_there_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMANDS[command], "--device", "cuda", "--quiet"]) == 1
    told = capsys.readouterr().err
    assert "cuda:0 needs an NVIDIA driver, and this host has none" in told
    assert "hint:" in told
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("command", [*COMMANDS, "export"])
def test_what_is_no_device_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = COMMANDS.get(command, ["export", "runs/any#1"])
    assert run([*line, "--device", "gpu"]) == 1
    assert "'gpu' is no device" in capsys.readouterr().err
