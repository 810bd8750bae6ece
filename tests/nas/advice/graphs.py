"""Small ONNX networks for advice, built layer by layer: no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nas.advice.graph import Graph, read_graph
from nas.advice.parts import Part, parts_of
from nas.advice.placing import Operator, placed
from nas.advice.rules import Evidence
from nas.advice.table import Ceiling
from nas.runtimes.nodes import NodeTime

CEILING = Ceiling({"fp32": 100.0, "bf16": 200.0, "int8": 400.0}, 50.0)


class Chain:
    """An image network that is written one layer after the other; each takes what the last gave."""

    def __init__(self, channels: int = 3, side: int = 16, batch: int = 1) -> None:
        self._input = (batch, channels, side, side)
        self.channels = channels
        self.tensor = "input"
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def conv(self, out: int, kernel: int = 1, *, groups: int = 1, name: str = "") -> Self:
        number = len(self._nodes)
        shape = (out, self.channels // groups, kernel, kernel)
        weight = np.random.default_rng(number).standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        self._weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{number}"))
        self.channels = out
        return self._add("Conv", [self.tensor, f"w{number}"], name, pads=[kernel // 2] * 4, group=groups)

    def depthwise(self, kernel: int = 3, name: str = "") -> Self:
        return self.conv(self.channels, kernel, groups=self.channels, name=name)

    def apply(self, op: str, *others: str, name: str = "", **attributes: Any) -> Self:
        """Any other operator; `others`: tensors that it also takes."""
        return self._add(op, [self.tensor, *others], name, **attributes)

    def residual(self, around: str, name: str = "") -> Self:
        """Add what `around`, a tensor, held."""
        return self._add("Add", [self.tensor, around], name)

    def excite(self, squeezed: int, name: str = "") -> Self:
        """Squeeze-and-excitation."""
        held, width = self.tensor, self.channels
        self.apply("GlobalAveragePool", name=f"{name}pool").conv(squeezed, name=f"{name}reduce").apply("Relu")
        self.conv(width, name=f"{name}expand").apply("HardSigmoid", name=f"{name}gate")
        return self._add("Mul", [self.tensor, held], f"{name}scale")

    def resize(self, scale: float, name: str = "") -> Self:
        number = len(self._nodes)
        scales = numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), f"s{number}")
        self._weights.append(scales)
        return self._add("Resize", [self.tensor, "", f"s{number}"], name, mode="nearest")

    def reshape(self, *shape: int) -> Self:
        """To a shape that the graph holds inside."""
        number = len(self._nodes)
        self._weights.append(numpy_helper.from_array(np.array(shape, np.int64), f"r{number}"))
        return self._add("Reshape", [self.tensor, f"r{number}"], "")

    def _add(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> Self:
        number = len(self._nodes)
        out = f"t{number}"
        self._nodes.append(helper.make_node(op, list(inputs), [out], name=name or f"{op}_{number}", **attributes))
        self.tensor = out
        return self

    def unnamed(self) -> Self:
        """Without any operator's name."""
        for node in self._nodes:
            node.name = ""
        return self

    def save(self, path: Path) -> Path:
        graph = helper.make_graph(
            self._nodes,
            "chain",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, self._input)],
            [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, None)],
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path

    def graph(self, folder: Path) -> Graph:
        return read_graph(self.save(folder / "chain.onnx"))


def plain(side: int = 16, batch: int = 1) -> Chain:
    """Three convolutions with nothing odd about them."""
    return Chain(side=side, batch=batch).conv(16, 3, name="first").conv(32, 3, name="second").conv(16, name="third")


def node(name: str, ms: float = 1.0, kind: str = "Conv", precision: str = "fp32") -> NodeTime:
    return NodeTime(name, ms, kind, precision)


def nodes_of(graph: Graph, ms: float = 1.0, precision: str = "fp32") -> list[NodeTime]:
    """As if every layer ran as an operator of its own."""
    return [NodeTime(layer.name, ms, layer.op, precision) for layer in graph.layers]


def evidence(
    graph: Graph, nodes: Sequence[NodeTime] | None = None, precision: str = "fp32", ceiling: Ceiling = CEILING
) -> Evidence:
    """What rules judge by, of operators that ran so long on a processor with AVX-512."""
    parts: Sequence[Part] = parts_of(graph)
    operators: Sequence[Operator] = placed(nodes or nodes_of(graph, precision=precision), graph, parts)
    return Evidence(
        graph=graph, parts=parts, operators=operators, precision=precision, ceiling=ceiling, isa=("avx512f",)
    )
