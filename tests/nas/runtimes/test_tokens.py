"""Networks on token ids in every runtime and precision: attention, convolutions and the wide path."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from nas.deploy.onnx import export_onnx
from nas.deployment import DYNAMIC_INT8, Deployment
from nas.runtimes import deployments_here, load_runtime
from nas.tasks import TASKS, tries_dynamic_int8
from search_spaces import resolve_space
from search_spaces.modules import folded, set_norm_statistics

PRECISIONS = [("onnxruntime", "fp32"), ("onnxruntime", "int8"), ("onnxruntime", DYNAMIC_INT8),
              ("openvino", "fp32"), ("openvino", "bf16"), ("openvino", "int8")]  # fmt: skip
AGREEMENT = {"fp32": 0.999999, "bf16": 0.99, "int8": 0.97, DYNAMIC_INT8: 0.97}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A network of all kinds of blocks as a file, some inputs, and what torch makes of them."""
    space = resolve_space("text")
    options = {"tokens": 16, "vocab": 1000, "embed.width": 64, "stem": 3, "stages": 3, "pool": "both", "wide": "pairs",
               "stage1.family": "attention", "stage1.heads": 2, "stage2.family": "conv1d"}  # fmt: skip
    row = [0] * len(space.decisions)
    row[space.column("stage3.family")] = 2
    for name, option in options.items():
        row[space.column(name)] = space.decisions[space.column(name)].index(option)
    torch.manual_seed(0)
    arch = space.architecture(row)
    network, spec = space.build(arch, (3,)), space.signature(arch, (3,)).input
    for table in network.wide.tables:  # type: ignore[union-attr,operator]
        torch.nn.init.normal_(table.weight)
    inputs = torch.from_numpy(spec.draw(np.random.default_rng(0), 64))
    inputs[:, 8:] *= (torch.arange(64) % 2)[:, None]  # every second text is filled up
    set_norm_statistics(network, inputs)
    network = folded(network)
    path = export_onnx(network, spec, tmp_path_factory.mktemp("tokens") / "model.onnx")
    with torch.inference_mode():
        return path, inputs.numpy(), network(inputs).numpy()


@pytest.mark.parametrize(("runtime", "precision"), PRECISIONS)
def test_outputs_agree_with_torch(
    runtime: str, precision: str, exported: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    path, inputs, expected = exported
    known = load_runtime(runtime)
    for reason in (known.missing(), known.unsupported(precision)):
        if reason is not None:
            pytest.skip(reason)
    file = known.prepare(path, precision, tmp_path, inputs)
    session = known.load(file, Deployment(runtime, precision, threads=1))
    assert (session.input.dtype, session.input.values) == ("int64", 1000)
    found = session.run(inputs)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > AGREEMENT[precision]
    if precision == "fp32":
        np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))


def test_int8_leaves_what_has_no_weights_in_floating_point(
    exported: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    path, inputs, _ = exported
    graph = onnx.load(load_runtime("onnxruntime").prepare(path, "int8", tmp_path, inputs)).graph
    made_by = {output: node.op_type for node in graph.node for output in node.output}
    layers = [n for n in graph.node if n.op_type in ("MatMul", "Conv", "Gemm")]
    quantised = {n.name for n in layers if any(made_by.get(name) == "DequantizeLinear" for name in n.input)}
    left = {n.name for n in layers} - quantised
    assert len(quantised) >= 8
    assert {name.rpartition("/")[2] for name in left} == {"MatMul", "MatMul_1"}, "the two products of attention"
    assert all("stages.0.0" in name for name in left)


def test_dynamic_int8_rounds_the_products_of_weights_alone(
    exported: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """It needs no inputs; convolutions and products of two maps stay in floating point."""
    path, inputs, _ = exported
    file = load_runtime("onnxruntime").prepare(path, DYNAMIC_INT8, tmp_path, None)
    graph = onnx.load(file).graph
    kinds = Counter(node.op_type for node in graph.node)
    before = Counter(node.op_type for node in onnx.load(path).graph.node)
    assert kinds["Conv"] == before["Conv"] > 0
    assert kinds["MatMul"] == 2, "the two products of attention"
    assert kinds["MatMulInteger"] == before["MatMul"] + before["Gemm"] - 2
    assert not kinds["Gemm"] + kinds["ConvInteger"]
    assert {path.name for path in tmp_path.iterdir()} == {file.name}
    one, same = (
        load_runtime("onnxruntime").load(file, Deployment("onnxruntime", DYNAMIC_INT8, threads=1)) for _ in range(2)
    )
    np.testing.assert_array_equal(one.run(inputs), np.concatenate([same.run(text[None]) for text in inputs]))


@pytest.mark.parametrize(("isa", "most"), [(("avx2",), 64), (("avx2", "avx512_vnni"), 127)])
def test_weights_of_dynamic_int8_suit_the_processor(
    isa: tuple[str, ...], most: int, exported: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    graph = onnx.load(load_runtime("onnxruntime").prepare(exported[0], DYNAMIC_INT8, tmp_path, None, isa=isa)).graph
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer]
    largest = max(int(np.abs(a.astype(int)).max()) for a in arrays if a.dtype == np.int8 and a.ndim == 2)
    assert most - 1 <= largest <= most


def test_dynamic_int8_is_offered_where_it_is_asked_for() -> None:
    usual = {d.name for d in deployments_here(1)}
    assert "onnxruntime-int8" in usual
    assert {d.name for d in deployments_here(1, dynamic_int8=True)} - usual == {"onnxruntime-int8-dynamic"}
    assert Deployment("onnxruntime", DYNAMIC_INT8, 1).computes_in == "int8"
    assert load_runtime("onnxruntime").unsupported(DYNAMIC_INT8, "cuda:0") is not None
    assert [name for name in TASKS if tries_dynamic_int8(name)] == ["text"]
