"""Faults that were planted are found, and a network without them is left alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nas.advice.graph import Graph
from nas.advice.rules import (
    RULES,
    Evidence,
    Rule,
    conversions,
    findings,
    float_layers,
    input_resizes,
    narrow_channels,
    padded_macs,
    slow_depthwise,
    transposes,
    unfused_activations,
    unfused_excitations,
    vector_width,
)
from nas.runtimes.nodes import NodeTime
from tests.nas.advice.graphs import Chain, evidence, node, nodes_of, plain

Ran = Callable[[Graph], Sequence[NodeTime]]


def ran_in(precision: str, *names: str) -> Ran:
    """All layers in int8, but those named in another precision."""

    def ran(graph: Graph) -> list[NodeTime]:
        return [replace(n, precision=precision if n.name in names else "int8") for n in nodes_of(graph)]

    return ran


def with_extra(*extra: NodeTime) -> Ran:
    """All layers, and operators that the runtime added behind the first."""
    return lambda graph: [nodes_of(graph)[0], *extra, *nodes_of(graph)[1:]]


def fused(*names: str) -> Ran:
    """All layers but some, which ran within others."""
    return lambda graph: [n for n in nodes_of(graph) if n.name not in names]


def conv_chain() -> Chain:
    return Chain().conv(16, 3, name="first").conv(32, name="second")


def with_activation(op: str) -> Chain:
    return conv_chain().apply(op, name="odd").conv(16, name="last")


def transposed(*permutations: Sequence[int]) -> Chain:
    chain = conv_chain()
    for place, perm in enumerate(permutations):
        chain.apply("Transpose", name=f"odd{place}", perm=list(perm))
    return chain.conv(16, name="last")


FAULTS: Sequence[tuple[str, Rule, Chain, Ran, str, str]] = [
    ("first layer in fp32", float_layers, plain(), ran_in("fp32", "first"), "int8", "first"),
    ("middle layer in fp32", float_layers, plain(), ran_in("fp32", "second"), "int8", "second"),
    ("last layer in bf16", float_layers, plain(), ran_in("bf16", "third"), "int8", "third"),
    ("a reorder", conversions, plain(), with_extra(node("r_1", 1.0, "Reorder")), "fp32", "first -> second"),
    ("dequantised", conversions, plain(), with_extra(node("d", kind="DequantizeLinear")), "int8", "first -> second"),
    ("a cast", conversions, plain(), with_extra(node("c", 1.0, "Cast")), "fp32", "first -> second"),
    ("17 channels", narrow_channels, Chain().conv(17, 3, name="odd").conv(16), nodes_of, "fp32", "odd,Conv_1"),
    ("17 channels inside", narrow_channels, conv_chain().conv(17, name="odd").conv(16), nodes_of, "fp32", "odd,Conv_3"),
    ("33 channels in int8", narrow_channels, Chain().conv(33, 3, name="odd").conv(16), nodes_of, "int8", "odd,Conv_1"),
    ("groups of 4", narrow_channels, conv_chain().conv(32, groups=8, name="odd").conv(16), nodes_of, "fp32", "odd"),
    ("7x7 depthwise", slow_depthwise, conv_chain().depthwise(7, name="odd").conv(16), nodes_of, "fp32", "odd"),
    ("5x5 depthwise", slow_depthwise, conv_chain().depthwise(5, name="odd").conv(16), nodes_of, "fp32", "odd"),
    ("hard-swish", unfused_activations, with_activation("HardSwish"), nodes_of, "fp32", "odd"),
    ("sigmoid", unfused_activations, with_activation("Sigmoid"), nodes_of, "fp32", "odd"),
    ("clip", unfused_activations, with_activation("Clip"), nodes_of, "fp32", "odd"),
    ("squeeze-excite", unfused_excitations, conv_chain().excite(8, "odd").conv(16), nodes_of, "fp32", "oddscale"),
    ("a transpose", transposes, transposed((0, 1, 3, 2)), nodes_of, "fp32", "odd0"),
    ("two that undo each other", transposes, transposed((0, 2, 3, 1), (0, 3, 1, 2)), fused("odd0", "odd1"), "", "odd0"),
    ("a resize of the input", input_resizes, Chain().resize(2, "odd").conv(16, 3), nodes_of, "fp32", "odd"),
    (
        "a resize behind a normalisation",
        input_resizes,
        Chain().apply("Sigmoid").resize(0.5, "odd").conv(16, 3),
        nodes_of,
        "fp32",
        "odd",
    ),
]  # fmt: skip


def seen_of(chain: Chain, ran: Ran, precision: str, folder: Path) -> Evidence:
    graph = chain.graph(folder)
    return evidence(graph, ran(graph), precision)


@pytest.mark.parametrize(
    ("rule", "chain", "ran", "precision", "where"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_planted_fault_is_found_where_it_is(
    rule: Rule, chain: Chain, ran: Ran, precision: str, where: str, tmp_path: Path
) -> None:
    found = rule(seen_of(chain, ran, precision, tmp_path))
    assert ",".join(finding.layer for finding in found) == where
    assert found[0].text


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_nothing_is_found_where_nothing_is_odd(rule: Rule, precision: str, tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    assert rule(evidence(graph, nodes_of(graph, precision=precision), precision)) == []


def test_a_network_of_another_deployment_is_int8_where_most_of_it_ran_so(tmp_path: Path) -> None:
    most = seen_of(plain(), ran_in("fp32", "second"), "fp32", tmp_path)
    little = seen_of(plain(), ran_in("fp32", "first", "second"), "fp32", tmp_path)
    assert [finding.layer for finding in float_layers(most)] == ["second"]
    assert float_layers(little) == []


def test_what_is_fused_is_no_finding(tmp_path: Path) -> None:
    """The very faults above, as a runtime that fuses them runs them."""
    hidden = ("oddpool", "oddreduce", "oddexpand", "oddgate", "Relu_4")
    assert unfused_excitations(seen_of(conv_chain().excite(8, "odd").conv(16), fused(*hidden), "fp32", tmp_path)) == []
    assert unfused_activations(seen_of(with_activation("HardSwish"), fused("odd"), "fp32", tmp_path)) == []


def test_few_conversions_are_no_finding(tmp_path: Path) -> None:
    assert conversions(seen_of(plain(), with_extra(node("r", 0.1, "Reorder")), "fp32", tmp_path)) == []


def test_channels_that_are_given_do_not_count(tmp_path: Path) -> None:
    """Three colours and seven classes are nobody's fault; nor are the channels of a depthwise layer its own."""
    graph = Chain().conv(16, 3).depthwise().conv(7).graph(tmp_path)
    assert narrow_channels(evidence(graph)) == []


def test_padding_is_counted(tmp_path: Path) -> None:
    (layer,) = Chain(channels=16).conv(17).graph(tmp_path).layers
    assert padded_macs(layer, 16, first=False, last=False) == pytest.approx(layer.macs * (32 / 17 - 1))
    assert padded_macs(layer, 16, first=False, last=True) == 0


def test_a_fast_depthwise_layer_is_no_finding(tmp_path: Path) -> None:
    graph = conv_chain().depthwise(7, name="odd").conv(16).graph(tmp_path)
    ms = {n.name: n.ms for n in nodes_of(graph)}
    layer = next(layer for layer in graph.layers if layer.name == "odd")
    ms["odd"] = layer.macs / 1e9 / 100 * 1e3 / 0.2  # a fifth of the ceiling
    slow = evidence(graph, [replace(n, ms=ms[n.name] if n.name == "odd" else 1e-3) for n in nodes_of(graph)])
    assert slow_depthwise(slow) == []


def test_findings_are_sorted_by_time(tmp_path: Path) -> None:
    chain = conv_chain().depthwise(7).apply("HardSwish").excite(8).conv(17)
    found = findings(seen_of(chain, nodes_of, "fp32", tmp_path))
    assert len({finding.rule for finding in found}) >= 3
    assert [finding.ms for finding in found] == sorted((finding.ms for finding in found), reverse=True)


def test_vectors_are_the_processors() -> None:
    assert [vector_width(isa) for isa in (("avx2", "avx512f"), ("avx2",), ("asimd",))] == [16, 8, 4]
