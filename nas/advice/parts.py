"""A network's graph in blocks: by the modules that its space names, or cut where a single tensor is alive."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nas.advice.graph import PRODUCTS, Graph, Layer


@dataclass(frozen=True, slots=True)
class Part:
    """One block of a network: layers that follow each other."""

    name: str
    """Path of its module, or the name of its first product where names tell no modules."""
    kind: str
    """Family of the block in its space, or what it consists of: `residual`, `depthwise`, `convolution`, ..."""
    layers: tuple[Layer, ...]

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)


def parts_of(graph: Graph, modules: Mapping[str, str] | None = None) -> tuple[Part, ...]:
    """The blocks of a graph, in order; each layer is in one of them.

    Args:
        graph: of the whole network.
        modules: path of each block's module -> its kind, as the network's space tells them; None where it has none.
            A layer outside of all modules belongs to the block before it.
    """
    groups = _by_modules(graph, modules) if modules else []
    if groups:
        assert modules is not None
        return tuple(Part(name, modules[name], tuple(layers)) for name, layers in groups)
    pieces = _joined(_cut(graph))
    names = _numbered([name_of(piece) for piece in pieces], [_innermost(piece) for piece in pieces])
    return tuple(Part(name, kind_of(piece), tuple(piece)) for name, piece in zip(names, pieces, strict=True))


def kind_of(layers: Sequence[Layer]) -> str:
    """Kind of a block by what it consists of."""
    products = [layer for layer in layers if layer.op in PRODUCTS]
    if not products:
        return "no product"
    if any(layer.op == "Softmax" for layer in layers) or any(_is_attention(layer) for layer in products):
        return "attention"
    if any(layer.is_depthwise for layer in products):
        return "depthwise"
    if all(layer.op in ("Gemm", "MatMul") for layer in products):
        return "linear"
    if any(layer.op == "Add" for layer in layers):
        return "residual"
    return "convolution"


def name_of(layers: Sequence[Layer]) -> str:
    """The module that a block's layers are of, else the name of its first product."""
    scopes = [scope for layer in layers if (scope := _block_scope(layer))]
    if scopes:
        (most, _), *_ = Counter(scopes).most_common(1)
        return most
    return next((layer.name for layer in layers if layer.op in PRODUCTS), layers[0].name)


def _is_attention(layer: Layer) -> bool:
    """True for a product of two activations."""
    return layer.op == "MatMul" and len(layer.inputs) == 2


def _numbered(names: Sequence[str], inner: Sequence[str]) -> list[str]:
    """Names of blocks, each its own: one that several have gives way to the innermost module, then to a number."""
    often = Counter(names)
    found = [own or name if often[name] > 1 else name for name, own in zip(names, inner, strict=True)]
    often, seen = Counter(found), Counter[str]()
    for place, name in enumerate(found):
        seen[name] += 1
        if often[name] > 1:
            found[place] = f"{name} ({seen[name]})"
    return found


def _innermost(piece: Sequence[Layer]) -> str:
    """The innermost module that all layers of a piece are of; empty where there is none."""
    common = [*piece[0].scopes]
    for layer in piece[1:]:
        common = [a for a, b in zip(common, layer.scopes, strict=False) if a == b]
    return common[-1] if common else ""


def _by_modules(graph: Graph, modules: Mapping[str, str]) -> list[tuple[str, list[Layer]]]:
    """Layers by module in the order of the file; empty where no layer's name tells any of the modules."""
    found: dict[str, list[Layer]] = {}
    before = list[Layer]()
    last = ""
    for layer in graph.layers:
        own = next((scope for scope in layer.scopes if scope in modules), last)
        if not own:
            before.append(layer)
            continue
        found.setdefault(own, [*before]).append(layer)
        before, last = [], own
    return list(found.items())


def _cut(graph: Graph) -> list[list[Layer]]:
    """The layers in pieces, cut wherever one tensor alone is alive: the last one computed."""
    last_use = {tensor: place for place, layer in enumerate(graph.layers) for tensor in layer.inputs}
    last_use[graph.output] = len(graph.layers)
    pieces: list[list[Layer]] = [[]]
    alive = {graph.input}
    for place, layer in enumerate(graph.layers):
        pieces[-1].append(layer)
        alive |= set(layer.outputs)
        alive = {tensor for tensor in alive if last_use.get(tensor, -1) > place}
        if len(alive) == 1 and alive <= set(layer.outputs):
            pieces.append([])
    return [piece for piece in pieces if piece]


def _joined(pieces: Sequence[Sequence[Layer]]) -> list[list[Layer]]:
    """The pieces, joined to blocks: a product with what follows it, and all that is of one module."""
    found: list[list[Layer]] = []
    for piece in pieces:
        joins = bool(found) and (
            not _has_product(found[-1])
            or not _has_product(piece)
            or (_block(piece) == _block(found[-1]) != "" and not (_is_residual(piece) or _is_residual(found[-1])))
        )
        if joins:
            found[-1].extend(piece)
        else:
            found.append(list(piece))
    if len(found) > 1 and not _has_product(found[-1]):
        found[-2].extend(found.pop())
    return found


def _is_residual(piece: Sequence[Layer]) -> bool:
    """True for what adds two maps: it is a block by itself, whatever lies around it."""
    return any(layer.op == "Add" and len(set(layer.inputs)) > 1 for layer in piece)


def _has_product(piece: Sequence[Layer]) -> bool:
    return any(layer.op in PRODUCTS for layer in piece)


def _block(piece: Sequence[Layer]) -> str:
    """The one module that all products of a piece are of; empty where there is none."""
    scopes = {_block_scope(layer) for layer in piece if layer.op in PRODUCTS}
    return scopes.pop() if len(scopes) == 1 else ""


def _block_scope(layer: Layer) -> str:
    """Path of the module that people would call the layer's block: the last of the containers that hold numbered
    modules, from the outside in. Exporters write `/layer1/layer1.0/conv1/Conv`, whose block is `layer1.0`."""
    block = ""
    for scope in layer.scopes:
        if block and not re.fullmatch(re.escape(block) + r"\.\w+", scope):
            break
        block = scope
    return block
