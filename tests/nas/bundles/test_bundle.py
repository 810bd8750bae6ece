"""Bundles: what is in one, and that what travels with it runs."""

import ast
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.bundles.bundle import RUN_SCRIPT, SAMPLE
from nas.bundles.predictor import Predictor
from nas.bundles.receipt import read_receipt
from nas.bundles.run_script import run_script
from nas.data import ImageData
from nas.data.decode import decode
from nas.data.images import image_input
from nas.data.preprocessing import PREPROCESS
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.networks.description import NetworkDescription
from nas.networks.find import RECEIPT
from nas.runtimes import RUNTIMES, load_runtime, ov
from nas.runtimes.onnx_file import read_input
from nas.runtimes.ort import session_settings
from nas.runtimes.ov import compile_settings
from nas.runtimes.torch_eager import TorchEager
from nas.tasks import task_named
from nas.tasks.detection.baselines import BASELINES
from tests.nas.fake_cuda import FakeCuda
from tests.nas.measure.fake_gpu import FakeGpu, FakeGraphs
from tests.nas.small_bundles import FP32, digits, write_bundle

NETWORKS = {
    "classification": NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32)),
    **{
        network.signature.output.kind: network
        for network in (NetworkDescription.of_baseline(name, (10,), image_input(64)) for name in BASELINES)
    },
}
SCRIPTS = {name: task_named(network.task).artifacts.script(network.signature) for name, network in NETWORKS.items()}


@pytest.fixture(scope="module")
def data() -> ImageData:
    return digits()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, data: ImageData) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "bundle", data=data)


def test_the_receipt_says_where_every_figure_comes_from(bundle: Path) -> None:
    receipt = json.loads((bundle / RECEIPT).read_text())
    files = {p.name for p in bundle.iterdir()} - {RECEIPT}
    assert receipt["sha256"] == {name: sha256_of(bundle / name) for name in files}
    assert {"model.onnx", "model.safetensors", "labels.json", PREPROCESS, SAMPLE, "sample.png", RUN_SCRIPT} <= files
    assert receipt["parity"]["agreement"] == 1.0
    assert receipt["parity"]["mean_abs_difference"] < 1e-4
    assert receipt["accuracy"]["deployed"] == receipt["accuracy"]["onnx_fp32"]
    assert [d["chosen"] for d in receipt["deployments"]] == [True]
    assert {"nas", "torch", "onnxruntime", "numpy"} <= receipt["versions"].keys() == receipt["licences"].keys()
    assert receipt["licences"]["onnxruntime"] == "MIT License"
    assert receipt["latency_ms"] is None, "nothing was measured"
    assert receipt["judged_ms"] == receipt["predicted_ms"] == 1.0
    assert receipt["fingerprint"] is None
    assert receipt["accuracy_on_device"] is False, "there is no telling what the device computes"
    read = read_receipt(bundle)
    assert read.deployment == FP32
    assert read.limits == {"latency_ms": 5.0, "percentile": 50}


@pytest.mark.parametrize(
    "deployment",
    [
        FP32,
        Deployment("onnxruntime", "int8", 1),
        Deployment("openvino", "fp32", 1),
        Deployment("torch", "fp32", 1),
        Deployment("onnxruntime", "int8", 1, batch=8),
        Deployment("openvino", "int8", 1, batch=8),
        Deployment("torch", "fp32", 1, batch=8),
    ],
    ids=lambda deployment: f"{deployment.name}-{deployment.batch}",
)
def test_run_py_repeats_the_sample_and_takes_any_image(
    deployment: Deployment, data: ImageData, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    bundle = write_bundle(tmp_path / "bundle", deployment, data)
    assert read_input(bundle / "model.onnx").shape[0] == read_receipt(bundle).deployment.batch == deployment.batch
    script = str(bundle / RUN_SCRIPT)
    monkeypatch.setattr(sys, "argv", [script])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script)
    assert not ended.value.code
    found = capsys.readouterr().out
    assert len(found.splitlines()) == 6
    assert "difference from the stored output" in found
    photo = tmp_path / "photo.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 70), dtype=np.uint8)).save(photo)
    monkeypatch.setattr(sys, "argv", [script, str(photo)])
    assert runpy.run_path(script)["inputs"].shape == (1, 3, 32, 32)
    assert len(capsys.readouterr().out.splitlines()) == 5
    sample = json.loads((bundle / SAMPLE).read_text())
    (bundle / SAMPLE).write_text(
        json.dumps({**sample, "logits": [v + 2 * sample["tolerance"] for v in sample["logits"]]})
    )
    monkeypatch.setattr(sys, "argv", [script])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script)
    assert ended.value.code


def test_run_py_on_a_gpu_replays_the_graph_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a fake GPU in the place of a real one; bundle and script are the ones that a user gets."""
    gpu = FakeGpu()
    monkeypatch.setattr(TorchEager.__init__, "__defaults__", (None, lambda _: FakeGraphs(gpu), FakeCuda()))
    bundle = write_bundle(tmp_path / "bundle", Deployment("torch", "fp16", 1, batch=4, device="cuda:0"))
    gpu.log.clear()
    monkeypatch.setattr(sys, "argv", [str(bundle / RUN_SCRIPT)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bundle / RUN_SCRIPT))
    assert not ended.value.code, capsys.readouterr().out
    assert gpu.log == ["upload", "replay", "download", "synchronise"]
    assert Predictor.open(bundle).session.batch == 4, "a precision that only the GPU has is no reason to refuse it"


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_run_py_needs_three_packages(script: str) -> None:
    for name in RUNTIMES:
        text = run_script(script, Deployment(name, "fp32", 1), "model.onnx")
        assert text is not None
        imported = {
            alias.split(".")[0]
            for node in ast.walk(ast.parse(text))
            for alias in (
                [a.name for a in node.names] if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
        } - set(sys.stdlib_module_names)  # fmt: skip
        assert imported == {"numpy", "PIL", "nas" if name == "torch" else name}
        assert max(map(len, text.splitlines())) <= 130
    assert run_script(script, Deployment("another", "fp32", 1), "model.onnx") is None


@pytest.mark.parametrize("threads", [1, 2])
def test_run_py_has_the_settings_that_were_measured(threads: int) -> None:
    script = next(iter(SCRIPTS.values()))
    attributes, entries = session_settings(Deployment("onnxruntime", "fp32", threads))
    text = run_script(script, Deployment("onnxruntime", "fp32", threads), "model.onnx")
    assert text is not None
    assert all(f"options.{name} = {value}\n" in text for name, value in attributes.items())
    assert all(f'("{key}", "{value}")' in text for key, value in entries.items())
    for precision, hint in (("fp32", "f32"), ("bf16", "bf16"), ("int8", "bf16")):
        deployment = Deployment("openvino", precision, threads)
        text = run_script(script, deployment, "model.xml")
        assert text is not None
        config = text[text.index("config = {") + len("config = ") : text.index("}\n", text.index("config = {")) + 1]
        assert ast.literal_eval(config) == compile_settings(deployment, hint)
        assert ("if " in text[text.index("config = {") : text.index("core.compile_model")]) == (precision == "int8")


def test_run_py_does_not_ask_for_wrong_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ov, "_offers_bf16", lambda: True)
    monkeypatch.setattr(ov, "computes_right", lambda hint: False)
    text = run_script(next(iter(SCRIPTS.values())), Deployment("openvino", "int8", 1), "model.xml")
    assert text is not None
    assert "'f32'" in text
    assert "bf16" not in text.lower()


def test_the_input_of_run_py_is_that_of_training(
    bundle: Path, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(bundle / RUN_SCRIPT), str(bundle / "sample.png")])
    images = runpy.run_path(str(bundle / RUN_SCRIPT))["inputs"]
    label = json.loads((bundle / SAMPLE).read_text())["label"]
    examples = data.at("val", 32)
    shown = [i for i, input in enumerate(data.inputs(examples)) if np.array_equal(input[None], images)]
    assert [data.classes[examples.labels[i]] for i in shown] == [label]


def test_a_bundle_is_used_from_python_as_by_its_script(
    bundle: Path, data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 255, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(photo)
    processor = task_named("classification").artifacts.processor(bundle)
    inputs = [processor.preprocess(example).inputs for example in (photo, str(photo), Image.open(photo), pixels)]
    assert all(np.array_equal(given, inputs[0]) for given in inputs[1:])
    output = load_runtime("onnxruntime").load(bundle / "model.onnx", FP32).run(inputs[0])[0]
    answers = processor.postprocess(output, None)
    assert [answer["label"] for answer in answers] == [data.classes[at] for at in output.argsort()[::-1]]
    assert sum(answer["score"] for answer in answers) == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr(sys, "argv", [str(bundle / RUN_SCRIPT), str(photo)])
    runpy.run_path(str(bundle / RUN_SCRIPT))
    printed = [f"{answer['label']}: {answer['score']:.1%}" for answer in answers[:5]]
    assert capsys.readouterr().out.splitlines() == printed
    with pytest.raises(UserError, match="cannot read image"):
        processor.preprocess(bundle / RECEIPT)
    with pytest.raises(UserError, match="cannot read"):
        task_named("classification").artifacts.processor(tmp_path)


def test_run_py_reads_grey_of_16_bits_as_training_does(
    bundle: Path, data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = tmp_path / "deep.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 65536, (40, 56), dtype=np.uint16)).save(photo)
    monkeypatch.setattr(sys, "argv", [str(bundle / RUN_SCRIPT), str(photo)])
    images = runpy.run_path(str(bundle / RUN_SCRIPT))["inputs"]
    assert np.array_equal(images, data.preprocess.array(decode(photo.read_bytes, "deep", 32)[None]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (None, "has no receipt.json, so it is no bundle"),
        ("{", "is damaged"),
        ("[]", "is no receipt of schema 1"),
        ({"schema": 2}, "was written by a newer version"),
        ({"schema": None}, "is no receipt of schema 1"),
        ({"model": "other.onnx"}, "no checksum of 'other.onnx'"),
        ({"sha256": {"../model.onnx": ""}}, "is no file of the bundle"),
        ({"runtime": None, "threads": 0}, "is not a whole receipt"),
        ({"data": {}}, "is not a whole receipt"),
    ],
)
def test_other_receipts_are_refused(change: object, sentence: str, bundle: Path, tmp_path: Path) -> None:
    whole = json.loads((bundle / RECEIPT).read_text())
    if change is not None:
        (tmp_path / RECEIPT).write_text(json.dumps({**whole, **change}) if isinstance(change, dict) else str(change))
    with pytest.raises(UserError, match=sentence) as refused:
        read_receipt(tmp_path)
    assert refused.value.hint
    with pytest.raises(UserError, match="no such bundle"):
        read_receipt(tmp_path / "nowhere")
