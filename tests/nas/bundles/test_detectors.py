"""Detectors are exported and verified as classifiers are."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nas.bundles.exporting import ExportRequest, export_bundle
from nas.bundles.verify import verify_bundle
from nas.deploy import deploy as deploying
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.networks.description import save_network
from nas.networks.find import RECEIPT
from nas.tasks.detection.artifacts import OUTPUT
from nas.tasks.detection.data import DetectionData
from nas.tasks.detection.task import Detection
from tests.nas.detectors import rectangle_data, smallest, untrained, write_detector
from tests.nas.small_bundles import instant


@pytest.fixture(scope="module")
def data() -> DetectionData:
    return rectangle_data()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, data: DetectionData) -> Path:
    return write_detector(tmp_path_factory.mktemp("bundle") / "bundle", smallest(), data=data)


@pytest.fixture
def bundle(original: Path, tmp_path: Path, data: DetectionData, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Detection, "load", lambda self, name, seed, options: data)
    shutil.copytree(original, tmp_path / "bundle")
    return tmp_path / "bundle"


def status(folder: Path) -> dict[str, str]:
    return {check.name: check.status for check in verify_bundle(folder)}


def resign(folder: Path, name: str) -> None:
    document = json.loads((folder / RECEIPT).read_text())
    document["sha256"][name] = sha256_of(folder / name)
    (folder / RECEIPT).write_text(json.dumps(document))


def test_a_whole_bundle_passes(bundle: Path) -> None:
    assert status(bundle) == {
        "checksums": "passed", "parity": "passed", "sample output": "passed", "accuracy": "passed",
        "limits": "not repeated",
    }  # fmt: skip
    assert "mAP@50" in verify_bundle(bundle)[3].detail


def test_what_was_changed_fails(bundle: Path) -> None:
    np.save(bundle / OUTPUT, np.load(bundle / OUTPUT) + np.float32(1))
    assert status(bundle)["checksums"] == "failed"
    resign(bundle, OUTPUT)
    document = json.loads((bundle / RECEIPT).read_text())
    document["accuracy"]["deployed"] += 0.2
    (bundle / RECEIPT).write_text(json.dumps(document))
    found = status(bundle)
    assert (found["sample output"], found["accuracy"]) == ("failed", "failed")
    (bundle / OUTPUT).write_bytes(b"\x93NUMPY")
    resign(bundle, OUTPUT)
    assert status(bundle)["sample output"] == "failed", "also where it cannot be read"


def test_other_boxes_are_other_data(bundle: Path, data: DetectionData, monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = replace(data.val, boxes=tuple(boxes.scaled(0.9) for boxes in data.val.boxes))
    monkeypatch.setattr(Detection, "load", lambda self, name, seed, options: replace(data, val=shifted))
    assert "are others than those of the receipt" in verify_bundle(bundle)[3].detail


def test_a_pair_of_files_is_exported(tmp_path: Path, data: DetectionData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Detection, "load", lambda self, name, seed, options: data)
    monkeypatch.setattr(deploying, "measure", instant)
    path = tmp_path / "model.network.json"
    save_network(untrained(smallest()), smallest(), path)
    request = ExportRequest(
        model=str(path), data="rectangles", runtimes=("onnxruntime",), precision="fp32", threads=1,
        out=tmp_path / "out",
    )  # fmt: skip
    receipt = export_bundle(request).receipt
    assert (receipt["task"], receipt["metric"]) == ("detection", "mAP@50")
    assert receipt["accuracy"]["torch"] == pytest.approx(receipt["accuracy"]["deployed"], abs=1e-6)
    assert receipt["postprocess_ms"] > 0
    assert receipt["latency_ms"]["p50"] == 2.0, "the network's alone"
    only_red = replace(data, classes=("red",))
    monkeypatch.setattr(Detection, "load", lambda self, name, seed, options: only_red)
    with pytest.raises(UserError, match="has 2 outputs, the data has 1 classes"):
        export_bundle(request)
