"""A network's graph and its blocks, whatever exported it."""

from pathlib import Path

import onnx
import pytest

from nas.advice.graph import bytes_of, read_graph, with_names
from nas.advice.parts import kind_of, parts_of
from nas.errors import UserError
from tests.nas.advice.graphs import Chain, plain
from tests.nas.tiny import write_tiny_network


def test_macs_are_those_of_the_products(tmp_path: Path) -> None:
    graph = Chain(side=8).conv(8, 3).apply("Relu").depthwise(5).conv(4).graph(tmp_path)
    assert [layer.macs for layer in graph.layers] == [64 * 8 * 27, 0, 64 * 8 * 25, 64 * 8 * 4]
    assert [layer.is_depthwise for layer in graph.layers] == [False, False, True, False]
    assert graph.macs == sum(layer.macs for layer in graph.layers)
    first = graph.layers[0]
    assert (first.in_channels, first.out_channels, first.kernel) == (3, 8, 3)
    assert bytes_of(first, "int8") * 4 == bytes_of(first, "fp32") == 4 * (3 * 64 + 8 * 64 + 8 * 27)


def test_a_batch_multiplies_the_macs(tmp_path: Path) -> None:
    assert plain(batch=8).graph(tmp_path).macs == 8 * plain().graph(tmp_path).macs


def test_a_matrix_product_is_counted(tmp_path: Path) -> None:
    graph = read_graph(write_tiny_network(tmp_path / "tiny.onnx"))
    assert graph.layers[-1].macs == 16 * 7
    assert graph.macs == 24 * 24 * 16 * 27 + 16 * 7


def test_a_network_is_cut_where_one_tensor_is_alive(tmp_path: Path) -> None:
    chain = Chain().conv(16, 3, name="stem").apply("Relu", name="act")
    held = chain.tensor
    chain.conv(32, name="expand").depthwise(name="deep").conv(16, name="project").residual(held, "sum")
    parts = parts_of(chain.conv(8, name="last").graph(tmp_path))
    assert [[layer.name for layer in part.layers] for part in parts] == [
        ["stem", "act"],
        ["expand", "deep", "project", "sum"],
        ["last"],
    ]
    assert [part.kind for part in parts] == ["convolution", "depthwise", "convolution"]


def test_layers_of_one_module_are_one_block_and_are_called_by_it(tmp_path: Path) -> None:
    chain = Chain().conv(16, name="/features/features.0/Conv")
    for name in ("0/conv.0.0", "1/conv.1.0", "2"):
        chain.conv(16, name=f"/features/features.1/conv/conv.{name}/Conv")
    parts = parts_of(chain.graph(tmp_path))
    assert [(part.name, len(part.layers)) for part in parts] == [("features.0", 1), ("features.1", 3)]


def test_two_blocks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    chain = Chain(channels=8)
    for number in range(2):
        held = chain.tensor
        chain.conv(8, name=f"/trunk/block{number}/a/Conv").conv(8, name=f"/trunk/block{number}/b/Conv").residual(
            held, f"/trunk/block{number}/Add"
        )
    assert [part.name for part in parts_of(chain.graph(tmp_path))] == ["block0", "block1"]


def test_a_space_tells_the_modules_of_its_blocks(tmp_path: Path) -> None:
    chain = Chain().conv(8, name="/stem/conv/Conv").apply("Relu", name="/stem/act/Relu")
    chain.conv(8, name="/stages.0/stages.0.0/a/Conv").conv(8, name="/stages.0/stages.0.0/b/Conv")
    graph = chain.conv(8, name="/head/linear/Conv").apply("Relu", name="after").graph(tmp_path)
    parts = parts_of(graph, {"stem": "stem", "stages.0.0": "basic", "head": "head"})
    assert [(part.name, part.kind) for part in parts] == [("stem", "stem"), ("stages.0.0", "basic"), ("head", "head")]
    assert sum(len(part.layers) for part in parts) == len(graph.layers)


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        (Chain().conv(8), "convolution"),
        (Chain().depthwise(), "depthwise"),
        (Chain().apply("Relu"), "no product"),
        (Chain().conv(8).apply("Softmax"), "attention"),
    ],
)
def test_a_block_is_called_by_what_it_consists_of(chain: Chain, kind: str, tmp_path: Path) -> None:
    assert kind_of(chain.graph(tmp_path).layers) == kind


def test_operators_without_a_name_get_one(tmp_path: Path) -> None:
    path = plain().unnamed().save(tmp_path / "unnamed.onnx")
    named = with_names(path, tmp_path / "named.onnx")
    names = [node.name for node in onnx.load(named).graph.node]
    assert named != path
    assert len(set(names)) == len(names) == 3
    assert with_names(named, tmp_path / "again.onnx") == named


def test_a_file_of_two_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 inputs and 2 outputs"):
        read_graph(write_tiny_network(tmp_path / "two.onnx", outputs=2))
