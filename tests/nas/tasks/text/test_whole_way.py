"""From a table of texts to a bundle that answers: search, fine-tuning, export, verification, script, bench, server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nas.bundles.predictor import Predictor
from nas.cli.main import run
from tests.nas.brief import hurry
from tests.nas.tasks.text.sentences import sentences, write_csv


@pytest.mark.slow
def test_from_a_table_to_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hurry(monkeypatch)
    data, out, bundle = write_csv(tmp_path / "made-up.csv", 600), tmp_path / "run", tmp_path / "bundle"
    runtimes = ["--runtime", "onnxruntime", "--precision", "fp32", "--threads", "1"]
    assert run(["profile", "toy", "--space", "text", "--networks", "12", *runtimes]) == 0
    line = ["search", "--target", "toy", "--latency-ms", "50", "--task", "text", "--data", str(data), "--threads", "1"]
    assert run([*line, "--max-trials", "2", "--seed", "1", "--out", str(out), "--estimator", "short"]) == 0
    document = json.loads((out / "result.json").read_text())
    best = document["best"][0]
    assert best["accuracy"]["deployed"] > 0.6, "guessing gives 0.5"
    assert [floor["name"] for floor in document["floors"]] == ["guessing", "TF-IDF and logistic regression"]

    assert run(["finetune", f"{out}#1", "--set", "epochs=1"]) == 0
    assert run(["export", f"{out}#1", "--out", str(bundle), "--target", "toy"]) == 0
    capsys.readouterr()
    assert run(["export", "--verify", str(bundle), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["status"] for check in checks} == {"passed"}, checks

    # Int8 whose ranges are found in each call is a deployment like the others.
    dynamic = tmp_path / "dynamic"
    rounded = ["--precision", "int8-dynamic", "--max-drop", "50"]
    assert run(["export", f"{out}#1", "--out", str(dynamic), "--target", "local", *rounded]) == 0
    assert json.loads((dynamic / "receipt.json").read_text())["precision"] == "int8-dynamic"
    capsys.readouterr()
    assert run(["export", "--verify", str(dynamic), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["status"] for check in checks} == {"passed"}, checks

    # The network teaches another one, also with texts that nobody labelled.
    more = tmp_path / "more.txt"
    more.write_text("\n".join(text for text, _ in sentences(200, 9)), encoding="utf-8")
    taught, teach = tmp_path / "taught", ["--teacher", f"{out}#1", "--unlabelled", str(more), "--tokens", "32"]
    assert run([*line, *teach, "--max-trials", "1", "--out", str(taught), "--estimator", "short"]) == 0
    document = json.loads((taught / "result.json").read_text())
    assert document["best"][0]["accuracy"]["deployed"] > 0.6
    assert document["best"][0]["architecture"]["decisions"]["tokens"] == 32
    assert any("200 texts without labels" in note for note in document["notes"])

    said = [text for text, _ in sentences(600, 0)]
    for file in [*bundle.glob("*.json"), *out.rglob("*.json"), *out.rglob("*.html"), *out.rglob("*.log")]:
        text = file.read_text(encoding="utf-8")
        assert not any(sentence in text for sentence in said), f"{file} holds a text of the data"

    answers = Predictor.open(bundle).predict([said[0], said[1].encode(), ""])
    assert [len(answer) for answer in answers] == [2, 2, 2]
    for arguments in ([], [said[0]]):
        line = [sys.executable, str(bundle / "run.py"), *arguments]
        script = subprocess.run(line, capture_output=True, text=True, check=False)
        assert script.returncode == 0, script.stderr
    assert script.stdout.startswith(answers[0][0]["label"])
    capsys.readouterr()
    few = ["--runtime", "onnxruntime", "--batch", "1", "--streams", "1", "--sessions", "1"]
    assert run(["bench", str(bundle), str(dynamic), *few, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {cell["precision"] for cell in cells} == {"fp32", "int8", "int8-dynamic"}
    assert all(cell["p50_ms"] > 0 for cell in cells)
