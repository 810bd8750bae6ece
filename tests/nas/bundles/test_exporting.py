"""Which deployment is exported, and what becomes of limits; timings are made up, everything else is real."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import nas.bundles.exporting as exporting
from nas.bundles.exporting import ExportRequest, choose_deployments, default_folder, export_bundle
from nas.bundles.source import resolve
from nas.bundles.verify import verify_bundle
from nas.data import ImageData
from nas.deploy import deploy as deploying
from nas.deploy.onnx import Parity, check_parity
from nas.deploy.quantised import FILE, FOLDER, QuantisedInTraining, write_quantised
from nas.errors import NotDeliverableError, UnknownNameError, UserError
from nas.finetune.quantisation import calibrate, calibration_inputs, export_rounded
from nas.measure.measurement import Measurement
from nas.networks.description import weights_path
from nas.networks.find import RECEIPT
from nas.runtimes.cpu import largest_int8_weight
from nas.runtimes.onnx_file import read_input
from nas.targets.registry import load_target
from nas.tasks import task_of
from nas.tasks.classification.task import Classification
from nas.tasks.examples import examples_of
from nas.training.rounding import rounded
from search_spaces.modules import folded
from tests.nas.fake_device import fake_profile, save_fake_profile
from tests.nas.small_bundles import digits, instant, save_pair, small_network, timed


@pytest.fixture(scope="module")
def data() -> ImageData:
    return digits()


@pytest.fixture
def request_(tmp_path: Path, data: ImageData, monkeypatch: pytest.MonkeyPatch) -> ExportRequest:
    monkeypatch.setattr(Classification, "load", lambda self, name, seed, options: data)
    monkeypatch.setattr(deploying, "measure", instant)
    return ExportRequest(
        model=str(save_pair(tmp_path)), runtimes=("onnxruntime",), data="digits", threads=1, max_drop=1.0,
        out=tmp_path / "bundle",
    )  # fmt: skip


def test_auto_takes_the_fastest_and_says_why_not_the_others(request_: ExportRequest) -> None:
    exported = export_bundle(replace(request_, latency_ms=1.6))
    by_name = {d["name"]: d for d in exported.receipt["deployments"]}
    assert exported.receipt["precision"] == "int8"
    assert exported.missed == ""
    assert exported.receipt["within_limit"]
    assert exported.receipt["margin_pct"] == pytest.approx(100 * (1 - 1 / 1.6))
    assert by_name["onnxruntime-fp32"]["reason"] == "its slowest session took 2.00 ms"
    assert exported.receipt["latency_ms"]["p90"] == pytest.approx(1.1)
    assert exported.receipt["judged_ms"] == pytest.approx(1.0), "the median: no other percentile is limited"
    assert len(exported.receipt["latency_ms"]["sessions"]) == 3
    assert exported.receipt["fingerprint"]["cores"] >= 1
    assert exported.receipt["accuracy"]["torch"] is not None
    assert json.loads((exported.folder / RECEIPT).read_text()) == exported.receipt
    assert not list(exported.folder.parent.glob(".preparing-*")), "nothing is left behind"


def test_a_margin_is_that_of_the_nearest_limit(
    request_: ExportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a limit on slow calls beside a throughput: the one with the 99th percentile, the other with the median."""
    monkeypatch.setattr(exporting, "measure", instant)
    run = tmp_path / "run"
    save_pair(run / "winners" / "1")
    (run / "result.json").write_text(json.dumps({"best": [{}]}))
    limits = {"latency_ms": 1.5, "percentile": 99, "throughput": 900.0}
    config = {"data": "digits", "seed": 0, "target": "local", "max_drop": 1.0, "limits": limits}
    (run / "config.json").write_text(json.dumps(config))
    exported = export_bundle(replace(request_, model=f"{run}#1"))
    assert exported.missed == ""
    assert exported.receipt["judged_ms"] == pytest.approx(1.2), "beyond the 1.11 ms that a median may take"
    assert exported.receipt["margin_pct"] == pytest.approx(10.0), "a median of 1 ms, and 20 % below the other limit"


def test_a_missed_limit_is_exported_and_said(request_: ExportRequest) -> None:
    exported = export_bundle(replace(request_, latency_ms=0.5))
    assert exported.missed == "its slowest session took 1.00 ms"
    assert not exported.receipt["within_limit"]
    assert exported.receipt["margin_pct"] == pytest.approx(-100)
    again = export_bundle(replace(request_, latency_ms=5.0))
    assert again.receipt["within_limit"], "an earlier bundle is replaced"


def test_a_drop_that_is_too_large_is_refused(request_: ExportRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_accuracy(tried: Any, *rest: Any) -> Any:
        return replace(tried, accuracy=0.9 if tried.deployment.precision == "fp32" else 0.7)

    monkeypatch.setattr(deploying, "_with_accuracy", with_accuracy)
    with pytest.raises(NotDeliverableError, match=r"onnxruntime-int8: accuracy 70.0% is below 80.0%") as refused:
        export_bundle(replace(request_, precision="int8", max_drop=0.1))
    assert "--max-drop" in str(refused.value.hint)
    assert request_.out is not None
    assert not request_.out.exists()
    exported = export_bundle(replace(request_, max_drop=0.1))
    assert exported.receipt["precision"] == "fp32"
    forced = export_bundle(replace(request_, precision="int8", max_drop=0.2))
    reasons = {d["name"]: d["reason"] for d in forced.receipt["deployments"]}
    assert reasons["onnxruntime-fp32"].startswith("not asked for"), "the reference was tried and not delivered"


def test_an_onnx_file_that_computes_something_else_is_refused(
    request_: ExportRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ({"agreement": 0.98}, {"mean_abs_difference": 2e-4}, {"mean_abs_difference": float("nan")}):

        def other(*arguments: Any, wrong: dict[str, float] = wrong) -> Parity:
            return replace(check_parity(*arguments), **wrong)

        monkeypatch.setattr(deploying, "check_parity", other)
        with pytest.raises(NotDeliverableError, match="does not compute what torch does"):
            export_bundle(replace(request_, precision="fp32"))
        assert request_.out is not None
        assert not request_.out.exists()


def test_no_validation_images_is_a_sentence(
    request_: ExportRequest, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = replace(data, val=data.val.take([]))
    monkeypatch.setattr(Classification, "load", lambda self, name, seed, options: empty)
    with pytest.raises(UserError, match="'digits' has no validation images"):
        export_bundle(request_)


def test_other_classes_and_unknown_data_are_sentences(request_: ExportRequest, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing says what"):
        export_bundle(replace(request_, data=None))
    (tmp_path / "labels.json").write_text(json.dumps([*"012345678", "ten"]))
    with pytest.raises(UserError, match="trained on other classes than 'digits' has \\('ten' and '9'\\)"):
        export_bundle(request_)


def test_what_is_in_the_way_stays(request_: ExportRequest, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files \(notes.txt\)"):
        export_bundle(replace(request_, out=folder))
    with pytest.raises(UserError, match="is a file"):
        export_bundle(replace(request_, out=folder / "notes.txt"))
    assert (folder / "notes.txt").read_text() == "mine"


def test_unusual_places(request_: ExportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Größe {1} #2"
    folder.mkdir()
    monkeypatch.chdir(folder)
    exported = export_bundle(replace(request_, precision="fp32", out=Path()))
    assert exported.folder == Path()
    assert (folder / RECEIPT).is_file()
    link = tmp_path / "link"
    link.symlink_to(folder)
    again = export_bundle(replace(request_, precision="fp32", out=link))
    assert link.is_symlink()
    assert json.loads((folder / RECEIPT).read_text()) == again.receipt, "an earlier bundle is replaced"
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["Größe {1} #2", "link"]


def test_a_bundle_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for rank in ("1", "2"):
        save_pair(tmp_path / "run" / "winners" / rank)
    config = {"data": "digits", "seed": 0, "target": "local", "max_drop": 0.01}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for name in ("run#2", "run/winners/2"):
        assert default_folder(resolve(name)) == Path("run/exports/2")
    save_pair(tmp_path / "run" / "finetune")
    assert default_folder(resolve("run/finetune")) == Path("run/finetune/model.bundle")


def test_deployments_that_do_not_exist(request_: ExportRequest) -> None:
    here = load_target("local")
    with pytest.raises(UnknownNameError, match="bf16"):
        choose_deployments(replace(request_, precision="bf16"), here, 1)
    with pytest.raises(UnknownNameError, match="tensorrt"):
        choose_deployments(replace(request_, runtimes=("tensorrt",)), here, 1)
    with pytest.raises(UserError, match="4096 threads are more than the"):
        choose_deployments(request_, here, 4096)
    names = [d.name for d in choose_deployments(request_, here, 1)]
    assert names == ["onnxruntime-fp32", "onnxruntime-int8"]


def test_another_device_is_predicted(request_: ExportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_fake_profile(tmp_path / "cache", fake_profile("elsewhere", host=False))
    exported = export_bundle(replace(request_, target="elsewhere", threads=None, latency_ms=1000.0))
    assert exported.receipt["latency_ms"] is None
    assert exported.receipt["predicted_ms"] > 0
    assert exported.receipt["precision"] == "int8"
    assert exported.receipt["within_limit"]
    missed = export_bundle(replace(request_, target="elsewhere", threads=None, latency_ms=1e-6))
    assert missed.missed.startswith("predicted to take up to")


def test_the_images_of_a_call_are_those_of_the_run_or_of_the_target(
    request_: ExportRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_fake_profile(tmp_path / "cache", fake_profile("eights", host=False, batch=8))
    run = tmp_path / "run"
    save_pair(run / "winners" / "1")
    (run / "result.json").write_text(json.dumps({"best": [{}]}))
    config = {"data": "digits", "seed": 0, "target": "local", "max_drop": 1.0, "limits": {"throughput": 1000.0}}
    (run / "config.json").write_text(json.dumps(config))
    known = {"runtime": "onnxruntime", "precision": "fp32", "threads": 1, "batch": 4}
    (run / "target.json").write_text(json.dumps({"deployments": [{"deployment": known}]}))
    here = export_bundle(replace(request_, model=f"{run}#1"))
    assert here.receipt["batch"] == read_input(here.folder / here.receipt["onnx"]).shape[0] == 4
    assert here.receipt["margin_pct"] == pytest.approx(100 * (1 - 1 / 4)), "1000 images/s are 4 ms for four"
    there = export_bundle(replace(request_, model=f"{run}#1", target="eights", threads=None))
    assert there.receipt["batch"] == read_input(there.folder / there.receipt["model"]).shape[0] == 8
    alone = export_bundle(replace(request_, target="eights", threads=None))
    assert alone.receipt["batch"] == 8
    (run / "config.json").write_text(json.dumps({**config, "target": "eights"}))
    with pytest.raises(UserError, match="run had batch 4, the profile of 'eights' now has 8") as refused:
        export_bundle(replace(request_, model=f"{run}#1", threads=None))
    assert "--batch 4" in str(refused.value.hint)


@pytest.mark.parametrize(("name", "value"), [("max_drop", 2.0), ("threads", 0)])
def test_impossible_requests(name: str, value: Any) -> None:
    with pytest.raises(UserError, match="makes no sense"):
        ExportRequest(model="x", **{name: value})


def quantised_in_training(pair: Path, data: ImageData) -> Path:
    """What `nas finetune` leaves beside a network, without the training."""
    network, description = small_network()
    task, examples = task_of(data), examples_of(data, description.signature.input)
    student = rounded(folded(network), largest_weight=largest_int8_weight(None))
    objective = task.objective(student, examples, task.recipe(), device=torch.device("cpu"))
    calibrate(student, calibration_inputs(objective, 32, 0))
    file = pair.parent / FOLDER / FILE
    file.parent.mkdir()
    export_rounded(student, description.signature.input, file)
    agreement = partial(task.agreement, signature=description.signature)
    parity = check_parity(student, file, data.preprocess.array(examples.val.images), agreement)
    made = QuantisedInTraining(file=file, epochs=3, val_accuracy_torch=0.5, parity=parity)
    write_quantised(made, weights_path(pair))
    return file


def test_what_was_quantised_in_training_is_tried_and_told(
    request_: ExportRequest, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = quantised_in_training(Path(request_.model), data)

    def measured(requests: Any, *, sessions: int = 3, least_calls: int = 0) -> list[Measurement]:
        return [timed(r, 0.5 if "in-training" in r.path.name else 1.0) for r in requests]

    monkeypatch.setattr(deploying, "measure", measured)
    exported = export_bundle(request_)
    receipt = exported.receipt
    tried = {d["name"]: d for d in receipt["deployments"]}
    chosen = tried.pop("onnxruntime-int8 (quantised in training)")
    assert chosen["chosen"]
    assert chosen["accuracy"] is not None
    assert {d["reason"] for d in tried.values()} == {"slower than onnxruntime-int8 (quantised in training)"}
    assert (exported.folder / receipt["model"]).read_bytes() == file.read_bytes()
    told = receipt["quantised_in_training"]
    assert (told["epochs"], told["parity"]["images"]) == (3, len(data.val))
    assert told["parity"]["agreement"] > 0.8
    checks = {c.name: c.status for c in verify_bundle(exported.folder)}
    assert checks.pop("limits") == "not repeated", "there was none"
    assert set(checks.values()) == {"passed"}

    monkeypatch.setattr(deploying, "measure", instant)
    plain = export_bundle(replace(request_, precision="fp32"))
    assert plain.receipt["quantised_in_training"] is None


def test_a_file_quantised_in_training_counts_only_as_it_was_made(request_: ExportRequest, data: ImageData) -> None:
    file = quantised_in_training(Path(request_.model), data)
    weights = weights_path(Path(request_.model))
    assert resolve(request_.model).in_training is not None
    assert resolve(request_.model, Path(shutil.copy(weights, weights.with_name("same.safetensors")))).in_training
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="is not the file that was quantised in training") as refused:
        resolve(request_.model)
    assert "nas finetune" in str(refused.value.hint)
    save_file({"other": torch.zeros(1)}, str(weights.with_name("other.safetensors")))
    assert resolve(request_.model, weights.with_name("other.safetensors")).in_training is None
