"""Every registered runtime keeps the contract of `nas.runtimes.base`."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.deployment import DYNAMIC_INT8, Deployment
from nas.errors import MissingDependencyError, UnknownNameError, UserError
from nas.runtimes import RUNTIMES, Runtime, available_runtimes, deployments_here, load_runtime, require
from nas.runtimes.base import missing_modules, run_in_batches
from nas.runtimes.cpu import has_bf16, has_int8_dot_product, largest_int8_weight, parse_cpu_flags
from nas.runtimes.devices import execution_providers
from nas.runtimes.ort import OnnxRuntime
from nas.runtimes.torch_eager import TorchEager
from tests.nas.tiny import CLASSES, calibration_images, write_tiny_network
from tests.nas.tiny_torch import load_tiny_network

CORRELATION = {"fp32": 0.999999, "bf16": 0.999, "int8": 0.99, DYNAMIC_INT8: 0.99}
EVERY_PRECISION = [(name, precision) for name in RUNTIMES for precision in load_runtime(name).precisions]


def _runtime(name: str) -> Runtime:
    """The registered runtime; `torch` with a loader of this test, because its networks come from another package."""
    runtime = TorchEager(load_network=load_tiny_network) if name == "torch" else load_runtime(name)
    if runtime.missing() is not None:
        pytest.skip(f"{name} is not installed")
    return runtime


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = write_tiny_network(tmp_path / "tiny.onnx")
    path.with_name("tiny.network.json").write_text("{}", encoding="utf-8")
    return path


@pytest.fixture
def truth(model: Path) -> NDArray[np.float32]:
    """fp32 outputs of five images."""
    session = OnnxRuntime().load(model, Deployment("onnxruntime", "fp32", 1))
    return np.concatenate([session.run(image[None]).copy() for image in calibration_images(5, seed=3)])


@pytest.mark.parametrize(("name", "precision"), EVERY_PRECISION)
def test_outputs_agree_with_fp32(
    name: str, precision: str, model: Path, truth: NDArray[np.float32], tmp_path: Path
) -> None:
    runtime = _runtime(name)
    if (reason := runtime.unsupported(precision)) is not None:
        pytest.skip(reason)
    artefact = runtime.prepare(model, precision, tmp_path / "out", calibration_images())
    session = runtime.load(artefact, Deployment(name, precision, threads=1))
    assert (session.batch, session.input.shape) == (1, (3, 24, 24))
    outputs = session.run(calibration_images(5, seed=3))  # a network of batch 1 takes five images one by one
    assert outputs.shape == (5, CLASSES)
    assert outputs.dtype == np.float32
    assert np.corrcoef(outputs.ravel(), truth.ravel())[0, 1] > CORRELATION[precision]
    if precision == "fp32":
        np.testing.assert_allclose(outputs, truth, rtol=1e-4, atol=1e-5)
    else:
        error = np.abs(outputs - truth).max() / np.abs(truth).max()
        assert error > 1e-4, "as exact as fp32, so the lower precision did not run"


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(("isa", "most"), [(("avx2",), 64), (("avx2", "avx512_vnni"), 127)])
def test_the_processor_that_will_run_it_decides_how_many_bits_weights_have(
    isa: tuple[str, ...], most: int, name: str, model: Path, tmp_path: Path
) -> None:
    """Without dot products of 8 bits, sums of two products saturate; what this host could do does not matter.

    OpenVINO's first layer, the convolution, has 7 bits everywhere.
    """
    runtime = _runtime(name)
    file = runtime.prepare(model, "int8", tmp_path / "out", calibration_images(), isa=isa)
    largest = {a.ndim: int(np.abs(a.astype(int)).max()) for a in _weights_of_bytes(file)}
    assert set(largest) == {2, 4}, "a matrix and a convolution"
    assert most - 1 <= largest[2] <= most
    assert most - 1 <= largest[4] <= most or (name == "openvino" and largest[4] <= 64)


def _weights_of_bytes(file: Path) -> list[NDArray[np.int8]]:
    """The int8 weights that a quantised file holds."""
    if file.suffix == ".onnx":
        import onnx

        arrays = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer]
    else:
        import openvino

        network = openvino.Core().read_model(file)
        constants = [op for op in network.get_ops() if op.get_type_name() == "Constant"]
        arrays = [op.data for op in constants if op.get_element_type().get_type_name() == "i8"]
    return [a for a in arrays if a.dtype == np.int8 and a.ndim in (2, 4)]


def test_half_precision_of_onnx_runtime_computes_the_network(
    model: Path, truth: NDArray[np.float32], tmp_path: Path
) -> None:
    """Its file is for GPUs, but the CPU can run it too."""
    import onnxruntime

    file = OnnxRuntime().prepare(model, "fp16", tmp_path / "out", None)
    session = onnxruntime.InferenceSession(file, providers=execution_providers("cpu"))
    name = session.get_inputs()[0].name
    outputs = np.concatenate([session.run(None, {name: image[None]})[0] for image in calibration_images(5, seed=3)])
    assert outputs.dtype == np.float32
    assert 1e-5 < np.abs(outputs - truth).max() / np.abs(truth).max() < 1e-2
    with pytest.raises(UserError, match="onnxruntime cannot run fp16 on this host"):
        OnnxRuntime().load(file, Deployment("onnxruntime", "fp16", 1))


@pytest.mark.parametrize("name", RUNTIMES)
def test_an_output_is_not_overwritten_by_the_next_call(name: str, model: Path, tmp_path: Path) -> None:
    runtime = _runtime(name)
    session = runtime.load(runtime.prepare(model, "fp32", tmp_path, None), Deployment(name, "fp32", 1))
    first, second = calibration_images(2, seed=5)
    output = session.run(first[None])
    kept = output.copy()
    session.run(second[None])
    np.testing.assert_array_equal(output, kept)


@pytest.mark.parametrize("name", RUNTIMES)
def test_unknown_precision_is_named(name: str, model: Path, tmp_path: Path) -> None:
    runtime = _runtime(name)
    with pytest.raises(UnknownNameError, match="fp31"):
        runtime.prepare(model, "fp31", tmp_path, None)
    with pytest.raises(UnknownNameError, match="fp31"):
        runtime.load(model, Deployment(name, "fp31", 1))


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("images", [None, np.zeros((0, 3, 24, 24), np.float32)], ids=["none", "empty"])
def test_int8_asks_for_calibration(name: str, images: NDArray[np.float32] | None, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="calibration"):
        _runtime(name).prepare(model, "int8", tmp_path / "out", images)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_prepare_leaves_nothing_but_the_artefact_and_prints_nothing(
    name: str, model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    artefact = _runtime(name).prepare(model, "int8", out, calibration_images())
    assert {path.stem for path in out.iterdir()} == {artefact.stem}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_garbage_is_a_user_error(name: str, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"not a network at all")
    runtime = _runtime(name)
    with pytest.raises(UserError, match=r"garbage\.onnx"):
        runtime.load(garbage, Deployment(name, "fp32", 1))
    with pytest.raises(UserError, match=r"garbage\.onnx"):
        runtime.prepare(garbage, "int8", tmp_path / "out", calibration_images())
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_shape_is_checked_and_a_free_batch_is_set(name: str, tmp_path: Path) -> None:
    runtime = _runtime(name)
    with pytest.raises(UserError, match="batch 2, not 1"):
        runtime.load(write_tiny_network(tmp_path / "two.onnx", batch=2), Deployment(name, "fp32", 1))
    with pytest.raises(UserError, match="2 outputs"):
        runtime.load(write_tiny_network(tmp_path / "pair.onnx", outputs=2), Deployment(name, "fp32", 1))
    free = runtime.load(write_tiny_network(tmp_path / "free.onnx", batch="n"), Deployment(name, "fp32", 1, batch=4))
    assert (free.batch, free.input.shape) == (4, (3, 24, 24))
    assert free.run(calibration_images(6)).shape == (6, CLASSES)


def test_batches_are_filled_up_and_cut() -> None:
    seen = []

    def call(images: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(len(images))
        return images.reshape(len(images), -1)

    images = np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1)
    outputs = run_in_batches(call, images, 2)
    assert seen == [2, 2, 2]
    assert outputs.ravel().tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="no inputs"):
        run_in_batches(call, images[:0], 2)


def test_unwritable_output_folder(model: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="cannot write"):
        OnnxRuntime().prepare(model, "int8", blocked / "out", calibration_images())


def test_registry_names_and_unknown_runtime() -> None:
    assert all(load_runtime(name).name == name for name in RUNTIMES)
    with pytest.raises(UnknownNameError) as caught:
        load_runtime("onnxruntim")
    assert "onnxruntime" in str(caught.value.hint)


def test_deployments_here() -> None:
    found = deployments_here(2)
    assert {deployment.runtime for deployment in found} <= set(available_runtimes())
    assert all(deployment.threads == 2 for deployment in found)
    assert Deployment("onnxruntime", "fp32", 2) in found
    assert deployments_here(1, ["torch"])[0] == Deployment("torch", "fp32", 1)


def test_a_missing_runtime_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_modules(("numpy", "surely_not_a_module"), "pip install it") == "pip install it"
    monkeypatch.setattr(OnnxRuntime, "missing", lambda _: "pip install onnxruntime")
    with pytest.raises(MissingDependencyError) as caught:
        require(OnnxRuntime())
    assert "pip install onnxruntime" in str(caught.value.hint)
    with pytest.raises(MissingDependencyError):
        deployments_here(1, ["onnxruntime"])


def test_bf16_is_refused_without_hardware(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr("nas.runtimes.ov._offers_bf16", lambda: False)
    monkeypatch.setattr("nas.runtimes.torch_eager.cpu_flags", frozenset)
    for name in ("openvino", "torch"):
        runtime = _runtime(name)
        with pytest.raises(UserError, match="bf16"):
            runtime.load(model, Deployment(name, "bf16", 1))
    assert all(deployment.precision != "bf16" for deployment in deployments_here(1, ["openvino"]))


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16\n\nprocessor : 1\nflags : other\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n", False),
        ("", False),
    ],
)
def test_bf16_flag(cpuinfo: str, expected: bool) -> None:
    assert has_bf16(parse_cpu_flags(cpuinfo)) is expected


@pytest.mark.parametrize(
    ("flags", "expected"), [({"avx2", "avx512f"}, False), ({"avx_vnni"}, True), ({"asimd", "asimddp"}, True)]
)
def test_int8_dot_product_flag(flags: set[str], expected: bool) -> None:
    assert has_int8_dot_product(frozenset(flags)) is expected
    largest = largest_int8_weight(frozenset(flags))
    assert largest > 127 // 2
    assert expected or 2 * 255 * largest < 2**15, "a sum of two products fits 16 bits"


def test_importing_the_registry_imports_no_runtime() -> None:
    script = (
        "import sys, nas.runtimes, nas.measure.protocol, nas.measure.worker\n"
        "print([m for m in ('torch', 'onnxruntime', 'openvino', 'nncf', 'onnx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


TWO_SESSIONS_THAT_GO = """
import gc, signal, sys
from pathlib import Path
from nas.deployment import Deployment
from nas.runtimes import load_runtime

runtime, path = load_runtime(sys.argv[1]), Path(sys.argv[2])
first, second = (runtime.load(path, Deployment(runtime.name, "fp32", 1)) for _ in range(2))
del first
gc.collect()
del second
gc.collect()
signal.signal(signal.SIGINT, lambda *_: print("answered"))
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_process_answers_signals_after_its_sessions_are_gone(name: str, model: Path) -> None:
    _runtime(name)
    line = [sys.executable, "-X", "faulthandler", "-c", TWO_SESSIONS_THAT_GO, name, str(model)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "answered\n"), done.stderr
