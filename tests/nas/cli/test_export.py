"""`nas export` as a user meets it."""

import json
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import PIL
import pytest

from nas.cli.main import run
from nas.deploy.deploy import deploy
from nas.networks.find import RECEIPT
from search_spaces import load_search_space
from tests.nas.bare_python import make_bare_python
from tests.nas.small_bundles import save_pair, small_network

FAST = ["--runtime", "onnxruntime", "--threads", "1", "--data", "digits", "--max-drop", "100", "--quiet"]


@pytest.mark.slow
def test_from_weights_to_a_bundle_that_runs_where_nothing_else_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(deploy.__kwdefaults__, "sessions", 3)  # as people are given them
    weights = save_pair(tmp_path).with_name("model.safetensors")
    arch, out = tmp_path / "arch.json", tmp_path / "bundle"
    _, description = small_network()
    arch.write_text(json.dumps(load_search_space("mobile").to_json(description.source)))  # type: ignore[arg-type]
    line = ["export", str(arch), "--checkpoint", str(weights), "--out", str(out), "--precision", "fp32", *FAST]
    assert run([*line, "--json"]) == 0
    receipt = json.loads(capsys.readouterr().out)
    assert receipt == {"bundle": str(out), **json.loads((out / RECEIPT).read_text())}
    assert receipt["parity"]["agreement"] == 1.0
    assert receipt["parity"]["mean_abs_difference"] < 1e-4
    assert len(receipt["latency_ms"]["sessions"]) == 3

    python = make_bare_python(tmp_path / "bare", (np, onnxruntime, PIL))
    assert subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0
    done = subprocess.run([python, out / "run.py"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    expected = np.array(json.loads((out / "sample.json").read_text())["logits"])
    shares = np.exp(expected - expected.max()) / np.exp(expected - expected.max()).sum()
    assert done.stdout.splitlines()[0] == f"{expected.argmax()}: {shares.max():.1%}"
    difference = float(done.stdout.splitlines()[-1].split("output: ")[1].split(",")[0])
    assert difference <= 1e-5 * np.abs(expected).max(), "on the same machine"

    assert run(["export", "--verify", str(out), "--json", "--quiet"]) == 0
    checks = {c["name"]: c["status"] for c in json.loads(capsys.readouterr().out)["checks"]}
    assert checks.pop("limits") == "not repeated", "there was none"
    assert set(checks.values()) == {"passed"}
    content = bytearray((out / receipt["model"]).read_bytes())
    content[len(content) // 2] ^= 1
    (out / receipt["model"]).write_bytes(content)
    assert run(["export", "--verify", str(out), "--quiet"]) == 3
    assert f"fails the check of its checksums: {receipt['model']} was changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere#1"], "no such run folder: 'nowhere'"),
        (["PAIR", "--data", "nothing"], "unknown data set 'nothing'"),
        (["PAIR"], "nothing says what PAIR was trained on"),
        (["PAIR", "--data", "digits", "--runtime", "tensorrt"], "unknown runtime 'tensorrt'"),
        (["PAIR", "--data", "digits", "--target", "mars"], "unknown target 'mars'"),
        (["PAIR", "--data", "digits", "--checkpoint", "PAIR"], "is not a whole safetensors file"),
        (["PAIR", "--data", "digits", "--latency-ms", "0"], "the latency limit '0' is not a possible latency"),
        (["PAIR", "--data", "digits", "--max-drop", "-1"], "the largest drop '-1' is not between 0 and 100"),
        (["--verify", "nowhere"], "no such bundle"),
        (["--verify", "."], "has no receipt.json"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pair = str(save_pair(tmp_path))
    before = sorted(tmp_path.iterdir())
    assert run(["export", *[pair if word == "PAIR" else word for word in arguments], "--quiet"]) == 1
    captured = capsys.readouterr()
    error, hint = captured.err.splitlines()
    assert sentence.replace("PAIR", pair) in error
    assert hint.startswith("hint: ")
    assert captured.out == ""
    assert sorted(tmp_path.iterdir()) == before, "nothing was written"


def test_verifying_takes_no_options_of_exporting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "--verify", "bundle", "--precision", "int8"]) == 2
    assert "--verify takes no --precision" in capsys.readouterr().err
