"""Bundles of detectors: what is in one, and that its script finds what this program finds."""

import json
import math
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import PIL
import pytest
from PIL import Image

from nas.bundles.receipt import read_receipt
from nas.data.preprocessing import PREPROCESS
from nas.deployment import Deployment
from nas.networks.find import RECEIPT
from nas.runtimes import load_runtime, ov
from nas.tasks import task_named
from nas.tasks.detection.artifacts import OUTPUT, POSTPROCESS
from nas.tasks.detection.data import DetectionData
from nas.tasks.detection.data.letterbox import decode_letterboxed
from nas.tasks.detection.heads import HEADS
from nas.tasks.detection.postprocess import detections
from tests.nas.bare_python import make_bare_python
from tests.nas.detectors import ORT, RESOLUTION, descriptions, rectangle_data, smallest, write_detector

KINDS = descriptions()


@pytest.fixture(scope="module")
def data() -> DetectionData:
    return rectangle_data()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, data: DetectionData) -> Path:
    return write_detector(tmp_path_factory.mktemp("bundle") / "bundle", smallest(), data=data)


def ran(bundle: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", [str(bundle / "run.py"), *arguments])
    return runpy.run_path(str(bundle / "run.py"))


def test_the_receipt_says_how_good_and_how_fast(bundle: Path, data: DetectionData) -> None:
    receipt = json.loads((bundle / RECEIPT).read_text())
    assert (receipt["task"], receipt["metric"]) == ("detection", "mAP@50")
    assert receipt["signature"]["output"]["kind"] == "anchor-free"
    accuracy = receipt["accuracy"]
    assert accuracy["deployed"] == accuracy["onnx_fp32"]
    assert 0 <= accuracy["map50_95"] <= accuracy["deployed"]
    assert list(accuracy["per_class_ap50"]) == ["red", "blue"]
    assert np.mean(list(accuracy["per_class_ap50"].values())) == pytest.approx(accuracy["deployed"])
    assert receipt["postprocess_ms"] > 0
    assert receipt["latency_ms"] is None, "post-processing is no latency of the network"
    assert {PREPROCESS, POSTPROCESS, OUTPUT, "sample.json", "sample.png", "run.py"} <= receipt["sha256"].keys()
    read = read_receipt(bundle)
    assert (read.task, read.signature.output.kind) == ("detection", "anchor-free")


@pytest.mark.parametrize("kind", KINDS)
def test_run_py_finds_what_this_program_finds(
    kind: str, data: DetectionData, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    bundle = write_detector(tmp_path / "bundle", KINDS[kind], data=data)
    monkeypatch.chdir(tmp_path)
    photo = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (400, 900, 3), dtype=np.uint8)).save(photo)
    letterboxed = decode_letterboxed(photo.read_bytes, "photo", RESOLUTION)
    square, (rows, columns) = letterboxed.pixels, letterboxed.extent
    session = load_runtime("onnxruntime").load(bundle / "model.onnx", ORT)
    raw = session.run(data.preprocess.array(square[None]))
    boxes, scores = HEADS[kind].decode(raw, RESOLUTION)
    rules = json.loads((bundle / POSTPROCESS).read_text())
    rules["score"] = float(np.quantile(scores, 0.9))  # an untrained network is never sure
    (bundle / POSTPROCESS).write_text(json.dumps(rules))
    (expected,) = detections(boxes, scores, score=rules["score"], iou=rules["iou"], most=rules["most"])
    assert len(expected) > 3

    seen = ran(bundle, monkeypatch, str(photo))
    assert np.array_equal(seen["inputs"], data.preprocess.array(square[None]))
    np.testing.assert_allclose(seen["boxes"], boxes[0], atol=1e-3)
    np.testing.assert_allclose(seen["scores"], scores[0], atol=1e-5)
    found = seen["found"]
    np.testing.assert_array_equal(np.sort(found.classes), np.sort(expected.classes))
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    np.testing.assert_allclose(np.sort(found.xyxy, axis=0), np.sort(expected.xyxy, axis=0), atol=1e-2)
    printed = [line.rsplit(maxsplit=4)[1:] for line in capsys.readouterr().out.splitlines()]
    in_photo = np.clip(found.xyxy * np.tile([900 / columns, 400 / rows], 2), 0, [900, 400, 900, 400])
    np.testing.assert_allclose(np.array(printed, float), in_photo, atol=0.6)
    processor = task_named("detection").artifacts.processor(bundle)
    prepared = processor.preprocess(photo)
    assert np.array_equal(prepared.inputs, seen["inputs"])
    answers = processor.postprocess(session.run(prepared.inputs)[0], prepared.context)
    assert [a["label"] for a in answers] == [data.classes[label] for label in found.classes]
    np.testing.assert_allclose([a["xyxy"] for a in answers], in_photo, atol=1e-3)
    with Image.open(tmp_path / "photo-detected.png") as drawn:
        assert drawn.size == (900, 400)
    assert not (bundle / "photo-detected.png").exists()


def test_run_py_reads_grey_of_16_bits_as_training_does(
    bundle: Path, data: DetectionData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photo = tmp_path / "deep.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 65536, (48, 64), dtype=np.uint16)).save(photo)
    square = decode_letterboxed(photo.read_bytes, "photo", RESOLUTION).pixels
    assert np.array_equal(ran(bundle, monkeypatch, str(photo))["inputs"], data.preprocess.array(square[None]))


@pytest.mark.parametrize(
    "deployment",
    [ORT, *(Deployment(*d, 1) for d in (("onnxruntime", "int8"), ("openvino", "fp32"), ("openvino", "bf16")))],
    ids=lambda deployment: deployment.name,
)
def test_run_py_repeats_the_sample(
    deployment: Deployment, data: DetectionData, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if reason := load_runtime(deployment.runtime).missing():
        pytest.skip(reason)
    # A processor without bf16 takes the hint and computes in fp32, here and in the script.
    monkeypatch.setattr(ov, "check_supported", lambda *_: None)
    bundle = write_detector(tmp_path / "bundle", smallest(), deployment, data)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        ran(bundle, monkeypatch)
    assert not ended.value.code
    assert "difference from the stored output" in capsys.readouterr().out
    stored = np.load(bundle / OUTPUT)
    stored[3, 5] += 2 * json.loads((bundle / "sample.json").read_text())["tolerance"]
    np.save(bundle / OUTPUT, stored)
    with pytest.raises(SystemExit) as ended:
        ran(bundle, monkeypatch)
    assert ended.value.code


def test_run_py_needs_numpy_pillow_and_the_runtime_alone(bundle: Path, tmp_path: Path) -> None:
    python = make_bare_python(tmp_path / "venv", (np, PIL, onnxruntime))
    ended = subprocess.run([python, bundle / "run.py"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "largest difference from the stored output" in ended.stdout
    assert (tmp_path / "sample-detected.png").is_file()


def test_the_sample_has_something_on_it(bundle: Path, data: DetectionData) -> None:
    sample = json.loads((bundle / "sample.json").read_text())
    assert sample["truth"]
    assert {found["label"] for found in sample["truth"]} <= set(data.classes)


def test_a_class_without_objects_has_no_precision(tmp_path: Path, data: DetectionData) -> None:
    from dataclasses import replace

    only_red = [i for i, boxes in enumerate(data.val.boxes) if not boxes.classes.any()]
    assert any(len(data.val.boxes[i]) for i in only_red)
    bundle = write_detector(tmp_path / "bundle", smallest(), data=replace(data, val=data.val.take(only_red)))
    receipt = json.loads((bundle / RECEIPT).read_text())
    assert receipt["accuracy"]["per_class_ap50"]["blue"] is None
    assert math.isfinite(receipt["accuracy"]["map50_95"])
