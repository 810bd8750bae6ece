"""From the operators that a runtime ran to the layers and blocks of the file that they came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nas.advice.graph import PRODUCTS, Graph, Layer
from nas.advice.parts import Part
from nas.errors import UserError
from nas.runtimes.nodes import NodeTime

_CONVERSIONS = frozenset(
    {"Reorder", "ReorderInput", "ReorderOutput", "QuantizeLinear", "DequantizeLinear", "Cast", "Convert"}
)
"""Types of operators that change nothing but the layout or the type of a tensor."""
_ADDED_CONVERSIONS = frozenset({"Transpose", "Subgraph", "FakeQuantize"})
"""Types that are such where no layer of the file has their name."""
_PRODUCT_WORDS = ("conv", "gemm", "matmul", "fullyconnected")
_LEAST_MS = 0.0005
"""What an operator counts where its runtime's counter of whole microseconds says 0."""
_LEAST_SHARE = 0.1
_FARTHEST = 8
"""So many layers back a product is looked for that the runtime named by the last layer it was fused with."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as the runtime ran it, after its own fusions."""

    name: str
    kind: str
    """Its type in the runtime's words; empty where that is not told."""
    precision: str
    ms: float
    layer: Layer | None
    """The layer of the file that it is, its product where several were fused; None for what the runtime added."""
    part: int | None
    """Place of its block; None where nothing tells."""
    converts: bool
    """True if it only changes the layout or the type of a tensor."""

    @property
    def macs(self) -> int:
        """Of its layer."""
        return 0 if self.layer is None or self.converts else self.layer.macs


def placed(nodes: Sequence[NodeTime], graph: Graph, parts: Sequence[Part]) -> tuple[Operator, ...]:
    """The operators with the layer and the block of each, in the order they ran.

    Operators carry the names of the file's layers or tensors, with endings of the runtime's own, or the paths of their
    modules. A conversion is paid by the block that needs it, the next one. Another operator without a name of the file
    (runtimes take layers apart) belongs to the block before it.

    Raises:
        UserError: there are none; all counters are 0; no name is one of the file.
    """
    if not nodes:
        raise UserError("the runtime does not time operators", "choose another: --runtime openvino")
    if max(node.ms for node in nodes) <= _LEAST_MS:
        raise UserError(
            f"the counters of all {len(nodes)} operators say 0 us: the network is too small to be told apart",
            "give it a larger input (--resolution), or several images a call (--batch 8)",
        )
    names = _names(graph)
    part_of = {layer.name: place for place, part in enumerate(parts) for layer in part.layers}
    modules = {part.name: place for place, part in enumerate(parts)}
    claimed: set[str] = set()
    found = list[Operator]()
    waiting = list[int]()
    current: int | None = None
    for node in nodes:
        layer = _named(node.name, names)
        converts = node.kind in _CONVERSIONS or (layer is None and node.kind in _ADDED_CONVERSIONS)
        if layer is not None and not converts and _multiplies(node.kind):
            layer = _product(layer, graph, claimed)
            claimed.add(layer.name)
        if converts:
            found.append(Operator(node.name, node.kind, node.precision, node.ms, layer, None, converts=True))
            waiting.append(len(found) - 1)
            continue
        if layer is not None:
            current = part_of[layer.name]
        else:
            current = next((modules[scope] for scope in node.name.split("/") if scope in modules), current)
        found.append(Operator(node.name, node.kind, node.precision, node.ms, layer, current, converts=False))
        _settle(found, waiting, current)
    _settle(found, waiting, current)
    if current is None:
        raise UserError(
            f"the runtime has names of its own for all {len(nodes)} operators, such as {nodes[0].name!r}",
            "its file lost the names of the network's layers: give the ONNX file, or export the network again",
        )
    return tuple(found)


def without_profiler(nodes: Sequence[NodeTime], each_ms: float) -> tuple[NodeTime, ...]:
    """The operators without the time that the profiler adds to each of them; a tenth of each stays at least. Negative
    time is added."""
    return tuple(replace(node, ms=max(node.ms - each_ms, _LEAST_SHARE * node.ms)) for node in nodes)


def _settle(found: list[Operator], waiting: list[int], part: int | None) -> None:
    """Book the waiting conversions on a block, where it is known."""
    if part is None:
        return
    for place in waiting:
        found[place] = replace(found[place], part=part)
    waiting.clear()


def _names(graph: Graph) -> Mapping[str, Layer]:
    """Layers by all names that a runtime may give them: their own, and those of the tensors they give."""
    return {**{t: layer for layer in graph.layers for t in layer.outputs}, **{la.name: la for la in graph.layers}}


def _named(name: str, names: Mapping[str, Layer]) -> Layer | None:
    """The layer whose name an operator's begins with, the longest that ends where a word does."""
    name = name.removeprefix("fused ")
    while name:
        if name in names:
            return names[name]
        end = max(name.rfind("_"), name.rfind("/"))
        name = name[:end] if end > 0 else ""
    return None


def _multiplies(kind: str) -> bool:
    return any(word in kind.lower() for word in _PRODUCT_WORDS)


def _product(layer: Layer, graph: Graph, claimed: set[str]) -> Layer:
    """The product that an operator is, which may be named by the last layer that it was fused with."""
    ring, seen = [layer], {layer.name}
    for _ in range(_FARTHEST):
        for candidate in ring:
            if candidate.op in PRODUCTS and candidate.name not in claimed:
                return candidate
        before = [graph.producers[t] for one in ring for t in one.inputs if t in graph.producers]
        ring = [one for one in before if one.name not in seen]
        seen |= {one.name for one in ring}
    return layer
