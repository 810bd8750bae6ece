"""Verifying: what holds passes, what was changed fails by name, what cannot be told is not called passed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nas.bundles import verify as module
from nas.bundles.verify import verify_bundle
from nas.data import ImageData
from nas.data_options import DataOptions
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.measure.host import fingerprint
from nas.measure.measurement import Measurement
from nas.networks.find import RECEIPT
from nas.tasks.classification.task import Classification
from tests.nas.small_bundles import FP32, digits, timed, write_bundle


@pytest.fixture(scope="module")
def data() -> ImageData:
    return digits()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, data: ImageData) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "bundle", data=data)


@pytest.fixture
def bundle(original: Path, tmp_path: Path, data: ImageData, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Classification, "load", lambda self, name, seed, options: data)
    shutil.copytree(original, tmp_path / "bundle")
    return tmp_path / "bundle"


def status(folder: Path, **options: Any) -> dict[str, str]:
    return {check.name: check.status for check in verify_bundle(folder, **options)}


def rewrite(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / RECEIPT).read_text())
    (folder / RECEIPT).write_text(json.dumps({**document, **changes}))


def resign(folder: Path, name: str) -> None:
    """As somebody would who changes a file and its checksum."""
    document = json.loads((folder / RECEIPT).read_text())
    rewrite(folder, sha256={**document["sha256"], name: sha256_of(folder / name)})


def test_a_whole_bundle_passes(bundle: Path, data: ImageData, tmp_path: Path) -> None:
    in_eights = write_bundle(tmp_path / "eights", replace(FP32, batch=8), data)
    for folder in (bundle, in_eights):
        assert status(folder) == {
            "checksums": "passed", "parity": "passed", "sample output": "passed", "accuracy": "passed",
            "limits": "not repeated",
        }  # fmt: skip


@pytest.mark.parametrize("name", ["model.onnx", "model.safetensors", "sample.png", "run.py"])
def test_one_changed_byte_is_found(name: str, bundle: Path) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    checks = verify_bundle(bundle)
    assert (checks[0].name, checks[0].status, checks[0].detail) == ("checksums", "failed", f"{name} was changed")
    assert {check.status for check in checks[1:]} == {"not repeated"}, "a changed file is not even loaded"
    (bundle / name).unlink()
    assert verify_bundle(bundle)[0].detail == f"{name} is missing"


def test_other_weights_fail_parity(bundle: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = bundle / "model.safetensors"
    save_file({k: v * 1.1 for k, v in load_file(str(weights)).items()}, str(weights))
    resign(bundle, weights.name)
    assert status(bundle)["parity"] == "failed"
    weights.unlink()
    document = json.loads((bundle / RECEIPT).read_text())
    rewrite(bundle, sha256={k: v for k, v in document["sha256"].items() if k != weights.name})
    assert status(bundle)["parity"] == "not repeated", "nothing to compare with"


def test_another_output_or_accuracy_fails(bundle: Path) -> None:
    sample = json.loads((bundle / "sample.json").read_text())
    (bundle / "sample.json").write_text(json.dumps({**sample, "logits": [0.0] * 10}))
    resign(bundle, "sample.json")
    assert status(bundle)["sample output"] == "failed"
    accuracy = json.loads((bundle / RECEIPT).read_text())["accuracy"]
    for name in ("deployed", "test"):
        rewrite(bundle, accuracy={**accuracy, name: accuracy[name] + 0.1})
        assert status(bundle)["accuracy"] == "failed", name
    (bundle / "sample.json").write_text("{}")
    resign(bundle, "sample.json")
    assert status(bundle)["sample output"] == "failed", "also where it cannot be read"


def test_the_accuracy_in_fp32_is_repeated_too(bundle: Path, data: ImageData, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "int8", replace(FP32, precision="int8"), data)
    accuracy = json.loads((folder / RECEIPT).read_text())["accuracy"]
    assert accuracy["onnx_fp32"] is None, "it was not tried"
    assert status(folder)["accuracy"] == "passed"
    right = json.loads((bundle / RECEIPT).read_text())["accuracy"]["onnx_fp32"]
    rewrite(folder, accuracy={**accuracy, "onnx_fp32": right})
    assert status(folder)["accuracy"] == "passed"
    rewrite(folder, accuracy={**accuracy, "onnx_fp32": right + 0.1})
    assert status(folder)["accuracy"] == "failed"


def test_without_the_data_accuracy_is_not_repeated(
    bundle: Path, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(task: Classification, name: str, seed: int, options: DataOptions) -> ImageData:
        raise UserError(f"no such file or folder: '{name}'")

    monkeypatch.setattr(Classification, "load", missing)
    checks = {check.name: check for check in verify_bundle(bundle, data="moved")}
    assert checks["accuracy"].status == "not repeated"
    assert "no such file or folder: 'moved'" in checks["accuracy"].detail
    assert checks["parity"].status == "passed"
    assert "on 1 sample the" in checks["parity"].detail
    others = replace(data, val=data.val.take(range(20)))
    monkeypatch.setattr(Classification, "load", lambda self, name, seed, options: others)
    assert "are others than those of the receipt" in verify_bundle(bundle)[3].detail


def test_limits_are_judged_on_the_same_device_alone(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = fingerprint()

    def limits_check(p50_ms: float, disturbance: str | None = None) -> tuple[str, str]:
        def measured(requests: Any, *, least_calls: int) -> list[Measurement]:
            return [timed(request, p50_ms, disturbance) for request in requests]

        monkeypatch.setattr(module, "measure", measured)
        check = verify_bundle(bundle)[-1]
        return check.status, check.detail

    assert limits_check(1.0) == ("not repeated", "it was not measured, but predicted for another device")
    rewrite(bundle, fingerprint=replace(here, cpu_model="another").to_json())
    assert limits_check(1.0)[0] == "not repeated"
    assert "this is another device: processor" in limits_check(1.0)[1]
    rewrite(bundle, fingerprint=here.to_json())
    assert limits_check(4.9)[0] == "passed"
    assert limits_check(5.1) == ("failed", "its slowest session took 5.10 ms; asked for: at most 5 ms")
    assert limits_check(5.1, "busy")[0] == "not repeated"
    assert limits_check(4.9, "busy")[0] == "passed", "a busy machine only adds time"
    rewrite(bundle, limits={"latency_ms": 5.0, "percentile": 99})
    assert limits_check(5.1)[0] == "failed"
    status, detail = limits_check(4.9)
    assert status == "not repeated"
    assert "at least 4.90 ms: these calls do not tell if it keeps the limit" in detail
    rewrite(bundle, limits={"latency_ms": 5.0, "max_params": 1000.0})
    assert limits_check(1.0, "busy")[0] == "failed", "who is busy has no more parameters"
    assert "k parameters; asked for: at most 5 ms, at most 1 k parameters" in limits_check(1.0)[1]
    rewrite(bundle, limits={"min_accuracy": 0.99})
    assert limits_check(1.0)[0] == "failed"
    rewrite(bundle, limits={"colour": 5.0})
    assert limits_check(1.0)[0] == "failed"
    rewrite(bundle, limits={})
    assert limits_check(1.0) == ("not repeated", "there was no limit")


def test_limits_are_counted_again_whatever_the_receipt_claims(
    bundle: Path, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure", lambda requests, **_: [timed(request, 1.0) for request in requests])
    document = json.loads((bundle / RECEIPT).read_text())
    claimed = {**document["accuracy"], "deployed": 1.0}
    rewrite(bundle, fingerprint=fingerprint().to_json(), accuracy=claimed, limits={"min_accuracy": 0.9})
    assert status(bundle)["limits"] == "failed", "the accuracy is measured"
    rewrite(bundle, limits={"max_params": 1e9, "min_accuracy": 1e-9})
    assert status(bundle)["limits"] == "passed"
    weights = bundle / "model.safetensors"
    weights.unlink()
    rewrite(bundle, sha256={k: v for k, v in document["sha256"].items() if k != weights.name})
    monkeypatch.setattr(Classification, "load", lambda self, name, seed, options: replace(data, val=data.test))
    check = verify_bundle(bundle)[-1]
    assert check.status == "not repeated"
    assert check.detail.startswith("its parameters cannot be counted and its accuracy cannot be measured here (p50")
