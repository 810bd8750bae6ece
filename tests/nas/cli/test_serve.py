"""`nas serve`, and handing a bundle on with `nas export`: what is refused, before anything is started."""

from pathlib import Path

import pytest

from nas.cli.main import run
from nas.serving import checks


def test_a_folder_that_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(tmp_path)]) == 1
    assert f"Error: '{tmp_path}' has no receipt.json, so it is no bundle" in capsys.readouterr().err


def test_libraries_that_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "LIBRARIES", ("starlette", "a_library_that_nobody_has"))
    assert run(["serve", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "Error: the server is not installed" in said
    assert "hint: run `pip install 'hardware-nas[serve]'`" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "bundle", "--again"], "--again takes --slo-ms"),
        (["serve", "bundle", "--port", "70000"], "'--port'"),
        (["serve", "bundle", "--replicas", "0"], "'--replicas'"),
        (["serve", "bundle", "--deadline-ms", "0"], "'--deadline-ms'"),
        (["export", "bundle", "--repository", "triton"], "--repository takes --out"),
        (["export", "bundle", "--repository", "other"], "'--repository'"),
        (["export", "bundle", "--docker", "out", "--precision", "int8"], "--docker takes no --precision"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert says in capsys.readouterr().err
