"""What usually makes a network slower than it had to be, each seen in the graph and the operators alone.

Every rule is a pure function from `Evidence` to findings; `RULES` is all of them.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nas.advice.graph import PRODUCTS, Graph, Layer
from nas.advice.parts import Part
from nas.advice.placing import Operator
from nas.advice.table import Ceiling, ran_in

CONVERSIONS_FROM, WORTH_NAMING = 0.05, 0.01
"""Share of the time from which conversions are a finding, and from which a single operator is."""
EDGES = 3
"""Conversions that are named by the edge they sit on, the slowest first."""
DEPTHWISE_BELOW = 0.10
"""Share of the ceiling."""
PADDED_FROM = 0.005
"""Share of the network's MACs that a layer's padding has to come to."""
ACTIVATIONS = frozenset(
    {"HardSwish", "HSwish", "HardSigmoid", "Sigmoid", "QLinearSigmoid", "Swish", "Silu", "Gelu", "Erf", "Clip", "Tanh"}
)
"""Types of operators that a runtime can compute within the product before them."""
_GATES = frozenset({"Sigmoid", "HardSigmoid"})
_POOLED = frozenset({"GlobalAveragePool", "ReduceMean"})
_RESIZES = frozenset({"Resize", "Upsample"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What rules judge by."""

    graph: Graph
    parts: Sequence[Part]
    operators: Sequence[Operator]
    precision: str
    """The deployment's."""
    ceiling: Ceiling
    isa: Collection[str]
    """The processor's instruction sets, as `nas.measure.host.HostFingerprint` has them."""

    @property
    def total_ms(self) -> float:
        return sum(operator.ms for operator in self.operators)

    def share(self, ms: float) -> float:
        return ms / self.total_ms if self.total_ms else 0.0

    def block_of(self, layer: Layer) -> str:
        """Name of the block that the layer is in."""
        return next((part.name for part in self.parts if layer in part.layers), "")

    def ms_of(self, layers: Collection[Layer]) -> float:
        """Time of the operators that are these layers, conversions aside."""
        names = {layer.name for layer in layers}
        return sum(o.ms for o in self.operators if o.layer is not None and not o.converts and o.layer.name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that costs time."""

    rule: str
    block: str
    """Empty for the network as a whole."""
    layer: str
    """The layer, or `first -> second` for the edge between two; empty where there are several."""
    ms: float
    """Time that it is about; not all of it can be saved."""
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Rule = Callable[[Evidence], list[Finding]]


def float_layers(seen: Evidence) -> list[Finding]:
    """Products of an int8 network that ran in floating point; also of a file that somebody else quantised, most of
    whose products ran in int8."""
    products = [o for o in seen.operators if o.layer is not None and not o.converts and o.layer.op in PRODUCTS]
    if seen.precision != "int8" and 2 * sum(o.precision == "int8" for o in products) <= len(products):
        return []
    return [
        Finding(
            rule="float-in-int8",
            block=seen.block_of(o.layer),
            layer=o.layer.name,
            ms=o.ms,
            text=f"{_short(o.layer)} ran in {o.precision}, though the network is int8"
            + (": the runtime has no int8 kernel for depthwise layers here" if o.layer.is_depthwise else ""),
        )
        for o in products
        if o.layer is not None and o.precision in ("fp32", "bf16", "fp16")
    ]


def conversions(seen: Evidence) -> list[Finding]:
    """Changes of layout or type, where they take much of the time."""
    own = [(place, o) for place, o in enumerate(seen.operators) if o.converts]
    ms = sum(o.ms for _, o in own)
    if seen.share(ms) <= CONVERSIONS_FROM:
        return []
    found = []
    for place, operator in sorted(own, key=lambda entry: -entry[1].ms)[:EDGES]:
        before = _neighbour(seen.operators[:place][::-1]) or "the input"
        after = _neighbour(seen.operators[place + 1 :]) or "the output"
        found.append(
            Finding(
                rule="conversions",
                block="" if operator.part is None else seen.parts[operator.part].name,
                layer=f"{before} -> {after}",
                ms=operator.ms,
                text=f"{operator.kind} between {before} and {after}; all {len(own)} conversions take "
                f"{100 * seen.share(ms):.0f} % of the time",
            )
        )
    return found


def narrow_channels(seen: Evidence) -> list[Finding]:
    """Products whose channels do not fill the processor's vectors, which then multiply by padding."""
    found = []
    for layer in seen.graph.layers:
        vector = vector_width(seen.isa)
        padded = padded_macs(layer, vector, first=seen.graph.input in layer.inputs, last=_is_last(seen.graph, layer))
        if seen.graph.macs and padded >= PADDED_FROM * seen.graph.macs:
            found.append(
                Finding(
                    rule="channels",
                    block=seen.block_of(layer),
                    layer=layer.name,
                    ms=seen.ms_of([layer]) * padded / (layer.macs + padded),
                    text=f"{_short(layer)} has {layer.in_channels} -> {layer.out_channels} channels, not all multiples "
                    f"of {vector}: {100 * padded / layer.macs:.0f} % more MACs are padding",
                )
            )
    return found


def vector_width(isa: Collection[str]) -> int:
    """Channels that the processor's products take at once: 16 fp32 values of an AVX-512 register (or 16 sums of four
    int8 products, which is also a row of AMX's results), 8 of AVX2, 4 of NEON."""
    names = " ".join(isa)
    if "avx512" in names:
        return 16
    return 8 if "avx" in names else 4


def padded_macs(layer: Layer, vector: int, *, first: bool, last: bool) -> float:
    """MACs of padding, where a layer's channels are filled up to multiples of `vector`.

    The channels of the input (`first`) and the size of the answer (`last`) are given, so they do not count.
    """
    if layer.op not in PRODUCTS or not layer.weight_shape or not layer.macs:
        return 0.0
    groups = 1 if layer.is_depthwise else layer.groups
    factor = 1.0
    for channels, given in ((layer.in_channels, first or layer.is_depthwise), (layer.out_channels, last)):
        each = max(1, channels // groups)
        factor *= 1.0 if given else math.ceil(each / vector) * vector / each
    return layer.macs * (factor - 1)


def slow_depthwise(seen: Evidence) -> list[Finding]:
    """Depthwise layers far below the ceiling: they move more than they multiply."""
    found = []
    for o in seen.operators:
        if o.layer is None or o.converts or not o.layer.is_depthwise or seen.share(o.ms) < WORTH_NAMING:
            continue
        reached = seen.ceiling.product_ms(o.macs, ran_in(o, seen.precision)) / o.ms
        if reached < DEPTHWISE_BELOW:
            found.append(
                Finding(
                    rule="depthwise",
                    block=seen.block_of(o.layer),
                    layer=o.layer.name,
                    ms=o.ms,
                    text=f"{_short(o.layer)} reaches {100 * reached:.1f} % of the ceiling: "
                    f"{100 * seen.share(o.ms):.0f} % of the time for "
                    f"{100 * o.macs / max(1, seen.graph.macs):.1f} % of the MACs",
                )
            )
    return found


def unfused_activations(seen: Evidence) -> list[Finding]:
    """Activations that ran as operators of their own."""
    by_part: dict[int, list[Operator]] = {}
    gates = {layer.name for gate in _excitations(seen.graph) for layer in gate}
    for o in seen.operators:
        own = o.kind in ACTIVATIONS or (o.layer is not None and o.layer.op in ACTIVATIONS and not _is_product(o))
        if own and o.part is not None and not o.converts and (o.layer is None or o.layer.name not in gates):
            by_part.setdefault(o.part, []).append(o)
    found = []
    for place, own_ones in by_part.items():
        ms = sum(o.ms for o in own_ones)
        if seen.share(ms) >= WORTH_NAMING:
            kinds = ", ".join(dict.fromkeys(o.kind or (o.layer.op if o.layer else "") for o in own_ones))
            found.append(
                Finding(
                    rule="unfused-activation",
                    block=seen.parts[place].name,
                    layer="" if len(own_ones) > 1 else own_ones[0].name,
                    ms=ms,
                    text=f"{kinds} ran outside of the products, in {len(own_ones)} operator(s): "
                    "a ReLU would be part of one",
                )
            )
    return found


def unfused_excitations(seen: Evidence) -> list[Finding]:
    """Squeeze-and-excitation: a pooled map, two small products and a multiplication, each an operator of its own."""
    found = []
    for gate in _excitations(seen.graph):
        names = {layer.name for layer in gate}
        own = [o for o in seen.operators if o.layer is not None and o.layer.name in names]
        ms = sum(o.ms for o in own)
        if len(own) > 1 and seen.share(ms) >= WORTH_NAMING:
            macs = sum(layer.macs for layer in gate)
            found.append(
                Finding(
                    rule="squeeze-excite",
                    block=seen.block_of(gate[-1]),
                    layer=gate[-1].name,
                    ms=ms,
                    text=f"squeeze-and-excitation runs as {len(own)} operators: {100 * seen.share(ms):.1f} % of the "
                    f"time for {100 * macs / max(1, seen.graph.macs):.1f} % of the MACs",
                )
            )
    return found


def transposes(seen: Evidence) -> list[Finding]:
    """Transposes of the file: two that undo each other, and any that takes time."""
    found = []
    for layer in seen.graph.layers:
        if layer.op != "Transpose":
            continue
        ms = seen.ms_of([layer])
        undone = next((f for f in seen.graph.followers(layer) if _undoes(layer, f)), None)
        if undone is None and seen.share(ms) < WORTH_NAMING:
            continue
        ran = f"{100 * seen.share(ms):.1f} % of the time" if ms else "the runtime removed it or fused it"
        found.append(
            Finding(
                rule="transpose",
                block=seen.block_of(layer),
                layer=layer.name,
                ms=ms,
                text=f"{layer.name} is undone at once by {undone.name}: export the network without both ({ran})"
                if undone
                else f"{layer.name} changes the order of the axes: {ran}",
            )
        )
    return found


def input_resizes(seen: Evidence) -> list[Finding]:
    """A change of the image's size inside of the network, before its first product."""
    reached, found = {seen.graph.input}, []
    for layer in seen.graph.layers:
        if not set(layer.inputs) & reached or layer.op in PRODUCTS:
            continue
        reached |= set(layer.outputs)
        if layer.op in _RESIZES:
            found.append(
                Finding(
                    rule="input-resize",
                    block=seen.block_of(layer),
                    layer=layer.name,
                    ms=seen.ms_of([layer]),
                    text=f"{layer.name} resizes the input inside of the network: give it images of its own size",
                )
            )
    return found


RULES: Sequence[Rule] = (
    float_layers, conversions, narrow_channels, slow_depthwise, unfused_activations, unfused_excitations, transposes,
    input_resizes,
)  # fmt: skip


def findings(seen: Evidence) -> list[Finding]:
    """What all rules find, the most time first."""
    return sorted((f for rule in RULES for f in rule(seen)), key=lambda f: -f.ms)


def _excitations(graph: Graph) -> list[tuple[Layer, ...]]:
    """The layers of each squeeze-and-excitation, from the pooling to the multiplication, in the order of the file."""
    found = []
    for layer in graph.layers:
        if layer.op != "Mul" or len(layer.inputs) != 2:
            continue
        gate = next((g for t in layer.inputs if (g := graph.producers.get(t)) is not None and g.op in _GATES), None)
        members = [layer]
        while gate is not None:
            members.append(gate)
            if gate.op in _POOLED:
                found.append(tuple(reversed(members)))
                break
            if len(gate.inputs) == 2:  # x times sigmoid(x) within it
                gate = next(
                    (g for t in gate.inputs if (g := graph.producers.get(t)) is not None and g.op in _GATES), None
                )
            elif len(gate.inputs) == 1:
                gate = graph.producers.get(gate.inputs[0])
            else:
                gate = None
    return found


def _undoes(first: Layer, second: Layer) -> bool:
    if second.op != "Transpose" or len(first.permutation) != len(second.permutation):
        return False
    return all(first.permutation[axis] == place for place, axis in enumerate(second.permutation))


def _is_last(graph: Graph, layer: Layer) -> bool:
    """True for the product that gives the answer: no other follows it."""
    products = [one for one in graph.layers if one.op in PRODUCTS]
    return bool(products) and layer == products[-1]


def _is_product(operator: Operator) -> bool:
    return operator.layer is not None and operator.layer.op in PRODUCTS


def _neighbour(operators: Sequence[Operator]) -> str:
    """Name of the first of them that computes something."""
    return next((o.layer.name if o.layer else o.name for o in operators if not o.converts), "")


def _short(layer: Layer) -> str:
    size = f"{layer.kernel}x{layer.kernel} " if layer.kernel else ""
    kind = "depthwise convolution" if layer.is_depthwise else "convolution" if layer.kernel else "product"
    return f"{layer.name} ({size}{kind})"
