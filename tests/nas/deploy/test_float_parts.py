"""Int8 with the last layers in floating point: which nodes these are, and when that is tried."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from nas.data.images import image_input
from nas.deploy.choosing import choose
from nas.deploy.deploy import with_float_parts
from nas.deploy.float_parts import FLOAT_PARTS, float_part
from nas.deploy.onnx import export_onnx
from nas.deploy.tried import TriedDeployment
from nas.deployment import Deployment
from nas.runtimes import load_runtime
from nas.runtimes.base import FloatPart
from nas.runtimes.onnx_file import output_nodes
from tests.nas.detectors import RESOLUTION, smallest, untrained

FP32, INT8, OTHER = (Deployment("onnxruntime", "fp32", 1), Deployment("onnxruntime", "int8", 1),
                     Deployment("openvino", "int8", 1))  # fmt: skip


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detector")
    return export_onnx(untrained(smallest()), image_input(RESOLUTION), folder / "model.onnx")


def test_the_last_layers_are_those_nearest_to_the_output(detector: Path) -> None:
    convolutions = {node.name for node in onnx.load(detector).graph.node if node.op_type == "Conv"}
    last = convolutions & set(output_nodes(detector))
    # Boxes and classes of three levels.
    assert len(last) == 6
    assert all("/predictions" in name for name in last)
    more = convolutions & set(output_nodes(detector, 3))
    assert last < more < convolutions
    assert set(output_nodes(detector, 100)) >= convolutions


def quantised_convolutions(path: Path) -> int:
    if path.suffix == ".xml":
        import openvino

        operations = openvino.Core().read_model(path).get_ops()
        return sum(operation.get_type_name() == "FakeQuantize" for operation in operations)
    graph = onnx.load(path).graph
    maker = {output: node.op_type for node in graph.node for output in node.output}
    return sum(maker.get(node.input[1]) == "DequantizeLinear" for node in graph.node if node.op_type == "Conv")


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_part_is_left_in_floating_point(name: str, detector: Path, tmp_path: Path) -> None:
    runtime = load_runtime(name)
    if runtime.missing() is not None:
        pytest.skip(f"{name} is not installed")
    images = np.random.default_rng(0).standard_normal((4, 3, RESOLUTION, RESOLUTION), dtype=np.float32)
    parts = [None, *(float_part(part, detector) for part in FLOAT_PARTS), FloatPart("all", (".*",))]
    made = [runtime.prepare(detector, "int8", tmp_path, images, float_part=part) for part in parts]
    assert len(set(made)) == len(parts), "each has its own file"
    counts = [quantised_convolutions(path) for path in made]
    assert sorted(set(counts), reverse=True) == counts
    assert counts[-1] == 0
    for path in made:
        output = runtime.load(path, Deployment(name, "int8", 1)).run(images)
        assert np.isfinite(output).all()


def tried(deployment: Deployment, accuracy: float | None, in_float: str = "") -> TriedDeployment:
    return TriedDeployment(
        deployment=deployment, path=Path("model.onnx"), accuracy=accuracy, measurement=None, in_float=in_float
    )


def test_more_is_left_in_floating_point_until_little_is_lost() -> None:
    worth = {"last layer": 0.5, "last 3 layers": 0.79}
    asked: list[tuple[Deployment, str]] = []

    def attempt(deployment: Deployment, part: str) -> TriedDeployment:
        asked.append((deployment, part))
        return tried(deployment, worth[part], part)

    found = with_float_parts([tried(FP32, 0.8), tried(INT8, 0.4), tried(OTHER, 0.799)], 0.02, attempt)
    assert [t.name for t in found] == [
        "onnxruntime-fp32", "onnxruntime-int8", "onnxruntime-int8 (last layer in float)",
        "onnxruntime-int8 (last 3 layers in float)", "openvino-int8",
    ]  # fmt: skip
    assert asked == [(INT8, "last layer"), (INT8, "last 3 layers")]
    accepted = [t.name for t in choose(found, 0.02, upper_bound=lambda d: 1.0) if t.accepted]
    assert accepted == ["onnxruntime-fp32", "onnxruntime-int8 (last 3 layers in float)", "openvino-int8"]


def test_nothing_more_is_tried_where_int8_is_good_or_cannot_be_made() -> None:
    def attempt(deployment: Deployment, part: str) -> TriedDeployment:
        raise AssertionError(f"{deployment} {part}")

    given = [tried(FP32, 0.8), tried(INT8, 0.79), replace(tried(OTHER, None), path=None)]
    assert with_float_parts(given, 0.01, attempt) == given
    low_fp32 = [tried(replace(FP32, runtime="openvino"), 0.1), tried(FP32, 0.8)]
    assert with_float_parts(low_fp32, 0.01, attempt) == low_fp32
