"""Units of an arbitrary network: pieces in a chain, each of which takes one tensor and gives one.

A network is traced (torch.fx) and cut wherever exactly one tensor is alive: a residual block cannot be cut inside,
because the tensor that goes around it is alive too. Chains of single operations are joined to what people call a block:
a convolution with the norm, activation and pooling that follow it, and all pieces of one module, such as an inverted
residual without a shortcut. Joined again, the units compute the same bits as the network.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from nas.errors import UserError
from nas.training.tracing import traced

_MATRICES = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear, nn.MultiheadAttention)
"""Modules that begin a unit; everything else goes with the one before it."""
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a network."""

    name: str
    """Path of the module that it is, or of the first and last of its modules: `layer1.0`, `conv1 to maxpool`."""
    module: nn.Module
    """Computes it: one tensor to one tensor. Shares its weights with the network."""
    input_shape: tuple[int, ...]
    """With the batch axis, as the network was traced."""
    output_shape: tuple[int, ...]
    macs: int
    """Multiply-accumulates of its convolutions and linear layers for one example."""
    params: int


def units_of(network: nn.Module, example: torch.Tensor) -> list[Unit]:
    """The units of `network`, in order; the network itself is put into evaluation mode and not changed otherwise.

    Args:
        network: takes one tensor and gives one.
        example: what it takes, (n, ...).

    Raises:
        UserError: it cannot be traced, does not take and give one tensor, or its units do not compute what it computes.
    """
    network.eval()
    graph = traced(network)
    nodes = _operations(graph)
    with torch.no_grad():
        expected = network(example.clone())  # it may change what it is given
        ShapeProp(graph).propagate(example.clone())
    if not isinstance(expected, torch.Tensor):
        raise UserError(
            f"{type(network).__name__} gives a {type(expected).__name__} instead of one tensor",
            "wrap it in a module that returns the tensor you need",
        )
    modules = dict(network.named_modules())
    blocks = frozenset(path for path, module in modules.items() if path and _is_block(module))
    units = _units(network, graph, _joined(_cut(graph, nodes), modules, blocks), blocks)
    found = example.clone()
    for place, unit in enumerate(units):
        found, macs = run_counted(unit.module, found)
        units[place] = replace(unit, macs=macs)
    if not torch.equal(found, expected):
        raise UserError(
            f"the {len(units)} units of {type(network).__name__} do not compute what it computes",
            "this is a defect of this program: report it with the network's name",
        )
    return units


def chain(units: Sequence[Unit]) -> nn.Sequential:
    """The network again, its units in a row, each under its name in `places`."""
    return nn.Sequential(OrderedDict(zip(places(units), (unit.module for unit in units), strict=True)))


def places(units: Sequence[Unit]) -> list[str]:
    """Names of the units' modules in a `chain`, in order."""
    return [f"unit_{number}" for number in range(len(units))]


def _operations(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]


def _cut(graph: fx.GraphModule, nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """The operations in pieces, cut wherever one tensor alone is alive: the last one computed."""
    last_use = {node: place for place, user in enumerate(nodes) for node in user.all_input_nodes}
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    last_use |= dict.fromkeys(output.all_input_nodes, len(nodes))
    pieces: list[list[fx.Node]] = [[]]
    alive = {node for node in graph.graph.nodes if node.op == "placeholder"}
    for place, node in enumerate(nodes):
        pieces[-1].append(node)
        alive.add(node)
        alive = {n for n in alive if last_use.get(n, -1) > place}
        if alive == {node} and _flows(node) and node.op != "get_attr":
            pieces.append([])
    return [piece for piece in pieces if piece]


def _flows(node: fx.Node) -> bool:
    """True if the node gives one tensor of two dimensions or more."""
    shape = getattr(node.meta.get("tensor_meta"), "shape", None)
    return shape is not None and len(shape) >= 2


def _joined(
    pieces: list[list[fx.Node]], modules: Mapping[str, nn.Module], blocks: Collection[str]
) -> list[list[fx.Node]]:
    """The pieces, joined to blocks; `modules`: of the network, by their paths; `blocks`: those that are one."""
    found: list[list[fx.Node]] = []
    for piece in pieces:
        block = _block_of(piece, blocks)
        if not found:
            joins = False
        elif (block and block == _block_of(found[-1], blocks)) or not _has_weights(found[-1], modules):
            joins = True
        else:
            joins = not (_has_weights(piece, modules) or _places(found[-1][-1]) > 1 == _places(piece[-1]))
        if joins:
            found[-1] = [*found[-1], *piece]
        else:
            found.append(list(piece))
    if len(found) > 1 and not _has_weights(found[-1], modules):
        found[-2:] = [found[-2] + found[-1]]
    return found


def _has_weights(piece: Sequence[fx.Node], modules: Mapping[str, nn.Module]) -> bool:
    """True if there is a convolution or a linear layer in the piece."""
    return any(node.op == "call_module" and _matrices(modules[str(node.target)]) for node in piece)


def _places(node: fx.Node) -> int:
    """Number of places of a feature map; 1 for vectors."""
    return math.prod(node.meta["tensor_meta"].shape[2:])


def _block_of(piece: Sequence[fx.Node], blocks: Collection[str]) -> str:
    """Path of the outermost block that all of the piece lies in; empty where there is none."""
    common, *others = (_scopes(node) for node in piece)
    for path in others:
        common = [a for a, b in zip(common, path, strict=False) if a == b]
    return next((path for path in common if path in blocks), "")


def _is_block(module: nn.Module) -> bool:
    """True for what people would call a block: no container, and no stage, which has several blocks of one kind."""
    if isinstance(module, _CONTAINERS):
        return False
    kinds = Counter(
        type(part)
        for part in module.modules()
        if part is not module and not isinstance(part, (*_CONTAINERS, *_MATRICES)) and _matrices(part) > 1
    )
    return max(kinds.values(), default=0) < 2


def _matrices(module: nn.Module) -> int:
    return sum(isinstance(part, _MATRICES) for part in module.modules())


def _scopes(node: fx.Node) -> list[str]:
    """Paths of the modules that the operation lies in, the outermost first; without the operation's own module."""
    scopes = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    own = str(node.target) if node.op == "call_module" else None
    return [path for path in scopes if path and path != own]


def _units(
    network: nn.Module, graph: fx.GraphModule, pieces: Sequence[Sequence[fx.Node]], blocks: Collection[str]
) -> list[Unit]:
    before = next(node for node in graph.graph.nodes if node.op == "placeholder")
    units = []
    for piece in pieces:
        module = _module(network, before, piece)
        units.append(
            Unit(
                name=_name(piece, blocks),
                module=module,
                input_shape=tuple(before.meta["tensor_meta"].shape),
                output_shape=tuple(piece[-1].meta["tensor_meta"].shape),
                macs=0,
                params=sum(p.numel() for p in module.parameters()),
            )
        )
        before = piece[-1]
    return units


def _module(network: nn.Module, before: fx.Node, piece: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    copies = {before: graph.placeholder("given")}
    for node in piece:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[piece[-1]])
    return fx.GraphModule(network, graph)


def _name(piece: Sequence[fx.Node], blocks: Collection[str]) -> str:
    """The block's path, or from which module to which it goes."""
    named = [_block_of([node], blocks) or str(node.target) for node in piece if node.op == "call_module"]
    if not named:
        return str(piece[0].name)
    return named[0] if named[0] == named[-1] else f"{named[0]} to {named[-1]}"


def run_counted(module: nn.Module, given: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The module's output, and the multiply-accumulates of the convolutions and linear layers that ran, per example."""
    macs = 0

    def count(layer: nn.Module, _: Any, output: torch.Tensor) -> None:
        nonlocal macs
        assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear)
        places = output.shape[1:-1] if isinstance(layer, nn.Linear) else output.shape[2:]
        macs += math.prod(places) * layer.weight.numel()

    layers = [m for m in module.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.no_grad():
            output: torch.Tensor = module(given)
        return output, macs
    finally:
        for hook in hooks:
            hook.remove()
