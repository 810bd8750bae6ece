"""`nas targets` with the list replaced: what a host offers differs from machine to machine."""

import json
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from nas.cli.main import run


@dataclass(frozen=True)
class Summary:
    name: str
    description: str
    source: str
    device: str
    deployments: tuple[str, ...]
    matches_host: bool
    held_out: str | None


@pytest.fixture(autouse=True)
def targets(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("nas.targets.registry")
    found = [
        Summary("local", "this machine", "this host", "Invented [processor]", ("openvino-int8",), True, None),
        Summary("board", "a small board", "bundled", "Invented board", ("onnxruntime-fp32",), False, "mean error 3 %"),
    ]
    module.list_targets = lambda: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nas.targets.registry", module)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets"]) == 0
    text = capsys.readouterr().out
    assert "Invented [processor]" in text
    assert "board: a small board" in text
    assert "mean error 3 %" in text


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["targets"]
    assert [target["name"] for target in found] == ["local", "board"]
    assert found[1]["deployments"] == ["onnxruntime-fp32"]
