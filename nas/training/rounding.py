"""A network as int8 runtimes compute it: what they round is rounded, values and gradients stay floating point.

Weights are rounded to 8 bits with one range per output channel, activations with one range per tensor (Jacob et al.
2018). A runtime computes a layer in integers only where it knows the ranges of all that goes in *and* of what comes
out. So not only the inputs of convolutions are rounded, but both sides of all that runtimes can compute in integers
(sums, products, pools), with a ReLU counted to the layer before it: the ranges stand where quantisation after training
puts them too (`onnxruntime.quantization`, form QDQ), and the same operators run in int8.
"""

import copy
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Self

import torch
from torch import fx, nn
from torch.ao.quantization import FakeQuantize
from torch.ao.quantization.observer import MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from nas.training.tracing import traced

LARGEST_WEIGHT = 127
"""Not 128: the largest weight would lie on the edge between two values."""
_RANGES = "ranges"


class Rounded(nn.Module):
    """A convolution or linear layer that computes with rounded weights."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, largest_weight: int = LARGEST_WEIGHT) -> None:
        super().__init__()
        self.layer = layer
        self.weights: nn.Module = FakeQuantize(  # type: ignore[no-untyped-call]
            observer=MovingAveragePerChannelMinMaxObserver,
            quant_min=-largest_weight,
            quant_max=largest_weight,
            dtype=torch.qint8,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
            averaging_constant=1.0,
        )
        self.weights(layer.weight)  # so that the ranges have their shapes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weights(self.layer.weight)
        if isinstance(self.layer, nn.Linear):
            return functional.linear(x, weight, self.layer.bias)
        out: torch.Tensor = self.layer._conv_forward(x, weight, self.layer.bias)
        return out


class LearntRange(FakeQuantize):
    """Rounding of an activation to 8 bits with one range, which is learnt in training mode alone.

    torch's own goes on learning in evaluation mode: validation images would move it.
    """

    def __init__(self) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            observer=MovingAverageMinMaxObserver,
            quant_min=0,
            quant_max=255,
            dtype=torch.quint8,
            averaging_constant=0.05,
        )

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.enable_observer(mode)
        return self


class FixedRange(nn.Module):
    """Rounding of an activation with plain numbers: runtimes want scalars, a `FakeQuantize` has vectors of one."""

    def __init__(self, learnt: LearntRange) -> None:
        super().__init__()
        self.scale, self.zero_point = float(learnt.scale), int(learnt.zero_point)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, 0, 255)


class FixedWeights(nn.Module):
    """Rounding of weights that are rounded already: it only says so to a reader of the graph."""

    scale: torch.Tensor
    zero_point: torch.Tensor

    def __init__(self, learnt: FakeQuantize) -> None:
        super().__init__()
        self.register_buffer("scale", learnt.scale.detach().clone())
        self.register_buffer("zero_point", torch.zeros_like(learnt.zero_point, dtype=torch.int32))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        # The exporter to ONNX knows no other bounds.
        return torch.fake_quantize_per_channel_affine(weight, self.scale, self.zero_point, 0, -128, 127)


class Gated(nn.Module):
    """SiLU or hard swish in the two operators that an ONNX file has for it, each with a range."""

    def __init__(self, gate: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


_GATES: Mapping[type[nn.Module], Callable[[torch.Tensor], torch.Tensor]] = {
    nn.SiLU: torch.sigmoid,
    nn.Hardswish: functional.hardsigmoid,
}
_CLIPS = (nn.ReLU, nn.ReLU6, functional.relu, torch.relu)
"""Operators that int8 kernels do beside their own work: the range behind it does it."""
_NOTHING = (nn.Identity, nn.Dropout)
"""Operators that are not there in a deployed network."""
_MOVES = (nn.MaxPool2d, nn.AvgPool2d, nn.Flatten, functional.max_pool2d, functional.avg_pool2d, torch.flatten)
"""Operators whose output has their input's range."""
_INTEGER = (
    Rounded, nn.AdaptiveAvgPool2d, nn.Sigmoid, functional.adaptive_avg_pool2d, torch.sigmoid, torch.cat,
    operator.add, operator.iadd, torch.add, operator.mul, operator.imul, torch.mul, *_MOVES,
)  # fmt: skip
"""Operators that runtimes compute in integers."""


def rounded(network: nn.Module, *, largest_weight: int = LARGEST_WEIGHT) -> fx.GraphModule:
    """A folded network (n, 3, h, w) -> (n, c) with rounding at every place; `network` shares its weights.

    Rounded weights are integers of at most `largest_weight`, see `nas.runtimes.cpu.largest_int8_weight`. Within a
    module that cannot be traced the weights alone are rounded. The ranges of activations are unknown:
    `nas.finetune.quantisation.calibrate` takes them from images.

    Raises:
        UserError: the network itself cannot be traced.
    """
    network.eval()
    _split_gated(network)
    graph = traced(network, finely=True)
    _merge_norms(graph)
    for name, module in list(graph.named_modules()):
        if isinstance(module, nn.Conv2d | nn.Linear):
            graph.set_submodule(name, Rounded(module, largest_weight))
    _Places(graph).fill()
    graph.graph.lint()
    graph.recompile()
    return graph


def ranges(network: nn.Module) -> Iterator[LearntRange]:
    """The ranges of activations in a rounded network."""
    return (m for m in network.modules() if isinstance(m, LearntRange))


def fixed(network: nn.Module) -> nn.Module:
    """A copy of a rounded network for export, in evaluation mode, whose ranges are constants."""
    network = copy.deepcopy(network).eval()
    for name, module in list(network.named_modules()):
        if isinstance(module, Rounded):
            weights = module.weights
            assert isinstance(weights, FakeQuantize)
            weights.disable_observer()
            with torch.no_grad():
                module.layer.weight.copy_(weights(module.layer.weight))
            module.weights = FixedWeights(weights)
        elif isinstance(module, LearntRange):
            network.set_submodule(name, FixedRange(module))
    return network


class _Places:
    """Places where activations are rounded: node of the graph -> name of the range behind it."""

    def __init__(self, traced: fx.GraphModule) -> None:
        self.traced = traced
        self.names: dict[fx.Node, str] = {}
        self.count = 0

    def fill(self) -> None:
        for node in self.traced.graph.nodes:
            if self.kind(node) in _INTEGER:
                for value in node.all_input_nodes:
                    self.of(value)
                self.of_output(node)
        for node, name in self.names.items():
            users = list(node.users)
            with self.traced.graph.inserting_after(node):
                behind = self.traced.graph.call_module(name, (node,))
            for user in users:
                user.replace_input_with(node, behind)

    def kind(self, node: fx.Node) -> object:
        """The class of a module, the function, or the name of a method."""
        return type(self.traced.get_submodule(str(node.target))) if node.op == "call_module" else node.target

    def of(self, node: fx.Node) -> str:
        """The range of a value, made where there is none yet."""
        kind = self.kind(node)
        if kind in _NOTHING:
            return self.of(node.all_input_nodes[0])
        if node not in self.names:
            self.names[node] = self.of(node.all_input_nodes[0]) if kind in _MOVES else self.new()
        return self.names[node]

    def of_output(self, node: fx.Node) -> None:
        """The range behind what an operator computes, and behind the clip that follows."""
        while len(node.users) == 1 and self.kind(user := next(iter(node.users))) in (*_CLIPS, *_NOTHING):
            node = user
        self.of(node)

    def new(self) -> str:
        name = f"{_RANGES}.{self.count}"
        self.count += 1
        self.traced.add_submodule(name, LearntRange())
        return name


def _split_gated(network: nn.Module) -> None:
    for name, child in list(network.named_children()):
        if type(child) in _GATES:
            setattr(network, name, Gated(_GATES[type(child)]))
        else:
            _split_gated(child)


def _merge_norms(traced: fx.GraphModule) -> None:
    """Into the convolutions before them; the networks of our spaces were folded by themselves."""
    for node in list(traced.graph.nodes):
        modules = [n for n in (*node.all_input_nodes, node) if n.op == "call_module"]
        if len(modules) != 2 or len(modules[0].users) != 1:
            continue
        before = modules[0]
        layer, norm = (traced.get_submodule(str(n.target)) for n in modules)
        if isinstance(norm, nn.BatchNorm2d) and isinstance(layer, nn.Conv2d):
            traced.set_submodule(str(before.target), fuse_conv_bn_eval(layer, norm))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
