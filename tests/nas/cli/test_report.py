"""`nas report` on a run folder."""

import json
from pathlib import Path

import pytest

from nas.cli.main import run
from nas.report.document import to_json
from tests.nas.report import documents


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / "result.json").write_text(to_json(documents.document()))
    documents.candidates().to_parquet(folder / "candidates.parquet")
    return folder


def test_writes_the_page_and_prints_the_tables(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(run_folder)]) == 0
    assert (run_folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert not (run_folder / "report.html.part").exists()
    assert "Winners" in capsys.readouterr().out


def test_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(run_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == documents.document()


@pytest.mark.parametrize(
    "damage", ["no folder", "no result", "no json", "old schema", "no candidates", "bad candidates"]
)
def test_damaged_run_is_named(damage: str, run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder
    match damage:
        case "no folder":
            folder = run_folder / "nothing"
        case "no result":
            (run_folder / "result.json").unlink()
        case "no json":
            (run_folder / "result.json").write_text("{")
        case "old schema":
            (run_folder / "result.json").write_text('{"schema": 0}')
        case "no candidates":
            (run_folder / "candidates.parquet").unlink()
        case "bad candidates":
            (run_folder / "candidates.parquet").write_text("PAR1 not really")
    assert run(["report", str(folder)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    error, hint = shown.err.splitlines()
    assert str(folder) in error
    assert hint.startswith("hint: ")
