"""Networks by file, bundle, run and name, and their files for any batch."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nas.bench.bench import BenchConfig, chosen_deployments, run_bench
from nas.bench.cells import Cell
from nas.bench.models import BenchModel, read_model, read_models
from nas.bench.onnx_graph import FixedBatchError, with_batch
from nas.bench.preparing import prepare_cells
from nas.data.images import image_input
from nas.deployment import DYNAMIC_INT8, Deployment
from nas.errors import UnknownNameError, UserError
from nas.networks.description import NETWORK, NetworkDescription, save_network
from nas.progress import SilentProgress
from nas.runtimes import load_runtime
from tests.nas.tiny import calibration_images, write_tiny_network

INPUT = image_input(24)
IMAGE = INPUT.shape


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return write_tiny_network(tmp_path / "tiny.onnx")


def write_fixed_batch(path: Path) -> Path:
    """A network whose Reshape holds its batch of one."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["input"], ["pooled"]),
        helper.make_node("Reshape", ["pooled", "shape"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "fixed",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, (1, *IMAGE))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, None))],
        [numpy_helper.from_array(np.array([1, -1], np.int64), "shape")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def write_bundle(folder: Path, **receipt: object) -> Path:
    """As a search delivers a winner, with a network of the zoo at 32 px."""
    folder.mkdir(parents=True)
    description = NetworkDescription.of_baseline("resnet10_w50", (4,), image_input(32))
    save_network(description.build(), description, folder / NETWORK)
    (folder / "receipt.json").write_text(json.dumps(receipt))
    return folder


@pytest.mark.parametrize("batch", [1, 4])
def test_the_batch_of_a_file_is_changed(batch: int, network: Path, tmp_path: Path) -> None:
    changed = with_batch(network, batch, INPUT, tmp_path / "changed.onnx")
    session = load_runtime("onnxruntime").load(changed, Deployment("onnxruntime", "fp32", 1, batch))
    images = calibration_images(batch)
    original = load_runtime("onnxruntime").load(network, Deployment("onnxruntime", "fp32", 1))
    np.testing.assert_allclose(session.run(images), original.run(images), atol=1e-5)


def test_a_graph_that_holds_its_batch_is_refused(tmp_path: Path) -> None:
    fixed = write_fixed_batch(tmp_path / "fixed.onnx")
    with pytest.raises(FixedBatchError, match=r"fixed.onnx cannot be changed to batch 4: its output then has shape"):
        with_batch(fixed, 4, INPUT, tmp_path / "changed.onnx")
    cells = [Cell(0, Deployment("onnxruntime", "fp32", 1, batch)) for batch in (1, 4)]
    model = BenchModel(name="fixed", input=INPUT, onnx=fixed)
    one, four = prepare_cells([model], cells, tmp_path / "files")
    assert isinstance(one, Path)
    assert isinstance(four, str)


def test_an_open_size_needs_a_resolution(tmp_path: Path) -> None:
    path = write_tiny_network(tmp_path / "open.onnx", batch="n", size="s")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="leaves the size of its image open") as error:
        read_model(str(path), None)
    assert error.value.hint == "say it: --resolution 224"
    model = read_model(str(path), 40)
    assert model.input == image_input(40)
    (file,) = prepare_cells([model], [Cell(0, Deployment("onnxruntime", "fp32", 1, 2))], tmp_path / "files")
    assert isinstance(file, Path)
    session = load_runtime("onnxruntime").load(file, Deployment("onnxruntime", "fp32", 1, 2))
    assert (session.batch, session.input.shape) == (2, (3, 40, 40))


def test_a_file_that_is_quantised_already_is_timed_as_it_is(network: Path, tmp_path: Path) -> None:
    runtime, folder = load_runtime("onnxruntime"), tmp_path / "made"
    folder.mkdir()
    given = runtime.prepare(network, "int8", folder, calibration_images())
    model = read_model(str(given), None)
    assert (model.integers, read_model(str(network), None).integers) == ("int8", None)
    cells = [Cell(0, Deployment("onnxruntime", precision, 1, batch)) for precision, batch in
             (("int8", 1), ("int8", 4), ("fp32", 1), (DYNAMIC_INT8, 1))]  # fmt: skip
    alone, four, fp32, dynamic = prepare_cells([model], cells, tmp_path / "files")
    assert isinstance(alone, Path)
    assert isinstance(four, Path)
    images = calibration_images(4)
    expected = [runtime.load(given, cells[0].deployment).run(images[i : i + 1])[0] for i in range(4)]
    outputs = [runtime.load(alone, cells[0].deployment).run(images[i : i + 1])[0] for i in range(4)]
    np.testing.assert_array_equal(outputs, expected)
    np.testing.assert_allclose(runtime.load(four, cells[1].deployment).run(images), expected, atol=0.2)
    assert fp32 == dynamic == f"{given} is quantised already: it is timed in int8 alone"


@pytest.mark.parametrize("precision", ["int8", DYNAMIC_INT8])
def test_a_bundle_is_exported_for_any_batch_and_keeps_its_own_int8(precision: str, tmp_path: Path) -> None:
    own = write_tiny_network(tmp_path / "own.onnx")
    folder = write_bundle(tmp_path / "bundle", runtime="onnxruntime", precision=precision, model="winners/1/int8.onnx")
    (folder / "int8.onnx").write_bytes(own.read_bytes())
    model = read_model(str(folder), None)
    assert (model.input, model.weights) == (image_input(32), "as given")
    assert model.delivered == {("onnxruntime", precision): folder / "int8.onnx"}
    (file,) = prepare_cells([model], [Cell(0, Deployment("onnxruntime", "fp32", 1, 2))], tmp_path / "files")
    assert isinstance(file, Path)
    session = load_runtime("onnxruntime").load(file, Deployment("onnxruntime", "fp32", 1, 2))
    assert (session.batch, session.input) == (2, image_input(32))


def test_winners_of_a_run_by_number(tmp_path: Path) -> None:
    write_bundle(tmp_path / "run" / "winners" / "1")
    (tmp_path / "run" / "result.json").write_text("{}")
    assert read_model(f"{tmp_path}/run#1", None).input == image_input(32)
    assert read_model(f"{tmp_path}/run", None).network == read_model(f"{tmp_path}/run#1", None).network


def test_wrong_networks_are_one_sentence(tmp_path: Path, network: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    two = write_tiny_network(tmp_path / "two.onnx", outputs=2)
    wrong = {
        "torchvision:resnet50:file.safetensors": "names weights, and is timed with random ones",
        "torchvision:resnet51": "torchvision has no classification network 'resnet51'",
        str(tmp_path / "absent.onnx"): "no such network",
        str(tmp_path / "text.onnx"): "is not an ONNX file",
        str(tmp_path): "no such network: the folder",
        str(two): "has 1 inputs and 2 outputs",
        "nowhere#1": "no such run folder: 'nowhere'",
        "nowhere": "no such network: 'nowhere'",
    }
    for text, sentence in wrong.items():
        with pytest.raises(UserError, match=sentence) as error:
            read_model(text, None)
        assert error.value.hint, text
    with pytest.raises(UserError, match="given twice"):
        read_models([str(network), str(network)], None)


def test_the_nearest_torchvision_name_is_told() -> None:
    with pytest.raises(UserError) as error:
        read_model("torchvision:resnet51", None)
    assert "torchvision:resnet50" in (error.value.hint or "")
    assert read_model("torchvision:resnet18", None).input == image_input(224)


def test_wrong_options_are_one_sentence(network: Path) -> None:
    with pytest.raises(UnknownNameError, match="precision 'int9'"):
        chosen_deployments(1, None, ["int9"])
    with pytest.raises(UnknownNameError, match="runtime 'openvine'"):
        chosen_deployments(1, ["openvine"], None)
    with pytest.raises(UserError, match="no runtime that was asked for runs bf16"):
        chosen_deployments(1, ["onnxruntime"], ["bf16"])
    for wrong in ({"target": "xeon-spr"}, {"threads": 10**6}, {"threads": 1, "streams": 2}):
        with pytest.raises(UserError) as error:
            run_bench(BenchConfig(models=(str(network),), **wrong), SilentProgress())  # type: ignore[arg-type]
        assert error.value.hint
