"""Operators find their layers and their blocks."""

from pathlib import Path

import pytest

from nas.advice.parts import parts_of
from nas.advice.placing import placed, without_profiler
from nas.errors import UserError
from nas.runtimes.nodes import NodeTime
from tests.nas.advice.graphs import Chain, node, nodes_of, plain


def test_names_may_have_endings_and_tensors_names(tmp_path: Path) -> None:
    graph = Chain().conv(8, name="/a/Conv").apply("Relu", name="/a/Relu").conv(8, name="/a/Conv_1").graph(tmp_path)
    ran = [node("/a/Conv_token_3"), node("fused /a/Conv_1/WithoutBiases", kind="Convolution")]
    assert [o.layer and o.layer.name for o in placed(ran, graph, parts_of(graph))] == ["/a/Conv", "/a/Conv_1"]
    assert [o.layer and o.layer.name for o in placed([node("t0_nchwc")], graph, parts_of(graph))] == ["/a/Conv"]


def test_a_product_that_is_named_by_what_it_was_fused_with_is_the_product(tmp_path: Path) -> None:
    chain = Chain().conv(16, 3, name="stem")
    held = chain.tensor
    graph = chain.conv(16, name="body").residual(held, "sum").apply("Relu", name="act").graph(tmp_path)
    ran = [node("stem"), node("t3_nchwc")]  # the output of `act`
    assert [o.layer and o.layer.name for o in placed(ran, graph, parts_of(graph))] == ["stem", "body"]


def test_conversions_are_paid_by_the_block_that_needs_them(tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    ran = [
        node("in_reorder", 1, "Reorder"),
        node("first", 2),
        node("first_output_0_DequantizeLinear", 4, "DequantizeLinear"),
        node("second", 8),
        node("QLinearMul_232", 16, "QLinearMul"),
        node("Transpose_token_1", 32, "Transpose"),
        node("third", 64),
        node("out", 128, "Reorder"),
    ]
    operators = placed(ran, graph, parts_of(graph))
    ms = [sum(o.ms for o in operators if o.part == place) for place in range(3)]
    assert ms == [1 + 2, 4 + 8 + 16, 32 + 64 + 128]
    assert [o.converts for o in operators] == [True, False, True, False, False, True, False, True]


def test_what_runs_before_the_first_known_layer_belongs_to_nobody(tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    first, *_ = placed([node("Sqrt_7", kind="Sqrt"), node("first")], graph, parts_of(graph))
    assert first.part is None


def test_the_path_of_a_module_tells_the_block(tmp_path: Path) -> None:
    """PyTorch's own times are of modules."""
    chain = Chain().conv(8, name="/stem/conv/Conv").conv(8, name="/stages.0/stages.0.0/a/Conv")
    graph = chain.graph(tmp_path)
    parts = parts_of(graph, {"stem": "stem", "stages.0.0": "basic"})
    ran = [node("/stem/conv/Conv2d", kind=""), node("/stages/stages.0/stages.0.0/a/Conv2d", kind="")]
    assert [(o.part, o.layer) for o in placed(ran, graph, parts)] == [(0, None), (1, None)]


def test_every_operator_is_somewhere(tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    operators = placed(nodes_of(graph), graph, parts_of(graph))
    assert [o.part for o in operators] == [0, 1, 2]
    assert sum(o.macs for o in operators) == graph.macs


@pytest.mark.parametrize(
    ("ran", "why"),
    [
        ([], "does not time operators"),
        ([NodeTime("first", 0.0005), NodeTime("second", 0.0)], "the counters of all 2 operators say 0 us"),
        ([node("node_17"), node("node_18")], "names of its own for all 2 operators, such as 'node_17'"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(ran: list[NodeTime], why: str, tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    with pytest.raises(UserError, match=why) as error:
        placed(ran, graph, parts_of(graph))
    assert error.value.hint


def test_the_profilers_time_is_taken_off_each_operator() -> None:
    assert [n.ms for n in without_profiler([node("a", 1.0), node("b", 0.01)], 0.25)] == [0.75, 0.001]
    assert [n.ms for n in without_profiler([node("a", 1.0)], -0.25)] == [1.25], "a profiler that leaves some out"
