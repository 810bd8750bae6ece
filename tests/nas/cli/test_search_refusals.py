"""What the real search refuses, in one sentence and before anything is written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nas.cli.main import run
from tests.nas.tasks.coco import write_coco


@pytest.mark.parametrize("more", [[], ["--resolution", "32"]])
def test_an_unknown_space_is_named(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["search", "--space", "nb201", "--target", "local", "--data", "digits", "--latency-ms", "5"]
    assert run([*command, "--budget", "1m", *more]) == 1
    captured = capsys.readouterr()
    assert "unknown search space 'nb201'" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def _undeclared(folder: Path) -> None:
    path = folder / "annotations" / "train.json"
    document = json.loads(path.read_text())
    document["annotations"][0]["category_id"] = 7
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_undeclared, "has category_id 7, which is not declared"),
        (lambda folder: (folder / "train" / "0.png").unlink(), "image '0.png' of 'annotations/train.json' is missing"),
        (lambda folder: (folder / "train" / "0.png").write_bytes(b"\x89PNG"), "cannot read image 'train/0.png'"),
        (lambda folder: (folder / "annotations" / "train.json").write_text("{"), "cannot read annotations"),
    ],
)
def test_detection_data_that_cannot_be_used_are_named(
    spoil: Callable[[Path], object], sentence: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data = write_coco(tmp_path / "coco", {"train": 6, "val": 4}, 64)
    spoil(data)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    command = ["search", "--task", "detection", "--data", str(data), "--target", "local", "--latency-ms", "25"]
    assert run([*command, "--budget", "1m"]) == 1
    captured = capsys.readouterr()
    error, hint = captured.err.strip().splitlines()
    assert error.startswith("Error: ")
    assert sentence in error
    assert "hint: " in hint
    assert captured.out == ""
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("estimator", ["supernet", "supernett"])
def test_an_estimator_that_cannot_evaluate_detectors_is_named(
    estimator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_coco(tmp_path / "coco", {"train": 6, "val": 4}, 64)
    command = ["search", "--task", "detection", "--data", str(data), "--target", "local", "--latency-ms", "25"]
    assert run([*command, "--estimator", estimator, "--out", str(tmp_path / "run")]) == 1
    assert f"'{estimator}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
