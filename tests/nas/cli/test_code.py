"""Code that only a file names is not run: what somebody named on this machine is, from then on and from its place."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nas.cli.code import FILE, allow_code, typed
from nas.networks.description import NetworkDescription
from search_spaces import TensorSpec
from search_spaces.code import ALLOWED, require_allowed
from search_spaces.errors import UserError
from search_spaces.reference import imported

PROJECT = Path(__file__).parents[3]
OWN = "tests.search_spaces.own_space:SPACE"
BUILDER = """\
from pathlib import Path
Path("ran").touch()
from torch import nn

def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, num_classes))
"""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "")  # so that it is put back as it was, whatever is set here
    monkeypatch.delenv(ALLOWED)


@pytest.mark.parametrize(
    ("arguments", "references"),
    [
        (["search", "--space", "mine.spaces:LEAN"], {"mine.spaces:LEAN"}),
        (["search", "--space=mine:LEAN", "--data", "my/photos"], {"mine:LEAN"}),
        (["search", "--baseline", "mine.nets:make:weights.safetensors"], {"mine.nets:make"}),
        (["bench", "python:mine.nets:make"], {"mine.nets:make"}),
        (["bench", "mine:TASK/small"], {"mine:TASK"}),
    ],
)
def test_references_are_found_in_arguments(arguments: list[str], references: set[str]) -> None:
    assert references <= typed(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "timm:resnet18", "torchvision:resnet18"],
        ["search", "--storage", "redis://localhost:6379/0", "--budget", "10m"],
        ["export", "theirs/run:main/", "RUN#1", "/tmp/run:main"],
    ],
)
def test_other_arguments_are_no_references(arguments: list[str]) -> None:
    assert typed(arguments) == set()


def test_a_program_imports_what_it_likes() -> None:
    assert imported(OWN, "search space").name


def test_only_what_was_named_is_imported(tmp_path: Path) -> None:
    allow_code(["search", "--data", "digits"], tmp_path)
    with pytest.raises(UserError, match="nobody on this machine") as caught:
        imported(OWN, "search space")
    assert f"{ALLOWED}={OWN}" in str(caught.value.hint)
    allow_code(["search", "--space", OWN], tmp_path)
    assert imported(OWN, "search space").name


def test_what_was_named_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_code(["search", "--space", OWN], tmp_path)
    monkeypatch.delenv(ALLOWED)
    allow_code(["report", "runs/mine"], tmp_path)
    assert imported(OWN, "search space").name


@pytest.mark.parametrize("file", ["own_nets.py", "own_nets/__init__.py", "own_nets/made.py"])
def test_a_package_of_that_name_from_elsewhere_is_another(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = "own_nets.made:made" if file.endswith("made.py") else "own_nets:made"
    for folder in ("mine", "theirs"):
        (tmp_path / folder / file).parent.mkdir(parents=True)
        (tmp_path / folder / file).write_text("made = 1\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "mine")
        allow_code(["bench", reference], tmp_path)
        patch.delenv(ALLOWED)
        allow_code(["report", "runs/mine"], tmp_path)
        require_allowed(reference, "network")
    monkeypatch.delenv(ALLOWED)
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    allow_code(["report", "runs/mine"], tmp_path)
    with pytest.raises(UserError, match="nobody on this machine"):
        imported(reference, "network")


def test_the_variable_names_code_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, f"other:THING {OWN}")
    allow_code(["report", "runs/mine"], tmp_path)
    assert imported(OWN, "search space").name
    monkeypatch.setenv(ALLOWED, "*")
    allow_code(["report", "runs/mine"], tmp_path / "new")
    assert imported(OWN, "search space").name
    assert not (tmp_path / "new" / FILE).exists()  # all of them, this once


@pytest.mark.parametrize("content", ["", "[]", '{"a:b": 3}', "{", "\x00"])
def test_a_damaged_memory_is_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    allow_code(["report", "runs/mine"], tmp_path)
    with pytest.raises(UserError, match="nobody on this machine"):
        imported(OWN, "search space")


def _nas(folder: Path, variables: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(part for part in (str(PROJECT), os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    command = [sys.executable, "-m", "nas", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_description_in_a_foreign_folder_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "run_of_theirs.py").write_text(BUILDER)
    described = NetworkDescription.of_baseline("resnet10", (10,), TensorSpec((3, 8, 8))).to_json()
    document = {**described, "zoo": "python:run_of_theirs:build"}
    (tmp_path / "model.network.json").write_text(json.dumps(document))
    command = ("export", "model.network.json", "--out", "file.onnx")
    refused = _nas(tmp_path, {}, *command)
    assert refused.returncode == 1, refused.stderr
    assert "nobody on this machine" in refused.stderr
    assert not (tmp_path / "ran").exists()
    _nas(tmp_path, {ALLOWED: "run_of_theirs:build"}, *command)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    _nas(tmp_path, {}, *command)  # remembered
    assert (tmp_path / "ran").exists()
