"""`nas profile`: what its two halves of a kit do not take is refused, not ignored."""

from pathlib import Path

import pytest

from nas.cli.main import run


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("--export-kit kit.zip --threads 2", "--export-kit takes no --threads"),
        ("--export-kit kit.zip --budget 5m --json", "--export-kit takes no --budget, --json"),
        ("--export-kit kit.zip --out board.json", "--export-kit takes no --out"),
        ("--import-kit result.json --space detect", "--import-kit takes no --space"),
        ("--import-kit result.json --networks 24 --batch 8", "--import-kit takes no --networks, --batch"),
        ("--import-kit result.json --export-kit kit.zip", "give one of them"),
    ],
)
def test_options_that_a_kit_has_no_use_for_are_refused(
    line: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["profile", "board", *line.split()]) == 2
    assert refused in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_options_that_a_kit_takes_reach_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--out` and `--json` do not stop an import: it fails only at the file that is not there."""
    line = ["profile", "board", "--import-kit", str(tmp_path / "result.json"), "--out", str(tmp_path / "board.json")]
    assert run([*line, "--json", "--quiet"]) == 1
    assert "is not the result of a kit" in capsys.readouterr().err
