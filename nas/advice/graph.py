"""A network's graph as values: its layers with shapes and costs, read from an ONNX file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nas.errors import UserError

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that multiply: all MACs are theirs."""
_CONSTANTS = frozenset({"Constant", "ConstantOfShape", "Shape"})
_BYTES = 4
"""Of an element in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One operator of the file that computes something of the network's input."""

    name: str
    op: str
    inputs: tuple[str, ...]
    """Tensors that depend on the network's input; weights and other constants are not among them."""
    outputs: tuple[str, ...]
    input_shape: tuple[int, ...] = ()
    """With the batch axis; empty where the file does not tell. Likewise `output_shape`."""
    output_shape: tuple[int, ...] = ()
    weight_shape: tuple[int, ...] = ()
    """Of the constant that it multiplies by; empty for none."""
    groups: int = 1
    permutation: tuple[int, ...] = ()
    """Of a Transpose."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one call (of all examples in the batch)."""
        if self.op not in PRODUCTS:
            return 0
        if self.op == "Conv":
            return _images(self.output_shape) * math.prod(self.weight_shape)
        if self.op == "ConvTranspose":
            return _images(self.input_shape) * math.prod(self.weight_shape)
        return math.prod(self.output_shape) * (self.input_shape[-1] if self.input_shape else 0)

    @property
    def elements(self) -> int:
        """Elements that it reads and writes at least: its input, output and weights."""
        return math.prod(self.input_shape) + math.prod(self.output_shape) + math.prod(self.weight_shape or (0,))

    @property
    def in_channels(self) -> int:
        """Of a convolution or a product with a constant; 0 for others."""
        if self.op in ("Conv", "ConvTranspose"):
            return self.input_shape[1] if len(self.input_shape) > 1 else 0
        return self.input_shape[-1] if self.weight_shape and self.input_shape else 0

    @property
    def out_channels(self) -> int:
        """Likewise."""
        if self.op in ("Conv", "ConvTranspose"):
            return self.output_shape[1] if len(self.output_shape) > 1 else 0
        return self.output_shape[-1] if self.weight_shape and self.output_shape else 0

    @property
    def is_depthwise(self) -> bool:
        """True for a convolution of each channel alone."""
        return self.op == "Conv" and self.groups > 1 and self.groups == self.in_channels

    @property
    def kernel(self) -> int:
        """Rows of a convolution's kernel; 0 for other layers."""
        return self.weight_shape[2] if self.op in ("Conv", "ConvTranspose") and len(self.weight_shape) > 2 else 0

    @property
    def scopes(self) -> tuple[str, ...]:
        """Paths of the modules that it lies in, the outermost first; empty where its name does not tell."""
        if not self.name.startswith("/"):
            return ()
        return tuple(self.name.split("/")[1:-1])


@dataclass(frozen=True)
class Graph:
    """The layers of a network, in the order of the file, each after those that it needs."""

    layers: tuple[Layer, ...]
    input: str
    """Name of the network's input."""
    output: str

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @cached_property
    def producers(self) -> Mapping[str, Layer]:
        """Tensor -> the layer that gives it."""
        return {tensor: layer for layer in self.layers for tensor in layer.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Layer, ...]]:
        """Tensor -> the layers that take it."""
        found: dict[str, tuple[Layer, ...]] = {}
        for layer in self.layers:
            for tensor in dict.fromkeys(layer.inputs):
                found[tensor] = (*found.get(tensor, ()), layer)
        return found

    def followers(self, layer: Layer) -> tuple[Layer, ...]:
        """Layers that take what `layer` gives."""
        return tuple(user for tensor in layer.outputs for user in self.consumers.get(tensor, ()))


def read_graph(path: Path) -> Graph:
    """The graph of an ONNX file, its shapes inferred.

    Raises `UserError` where it is no whole ONNX file, or has more than one input or output.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import shape_inference

    try:
        model = onnx.load(path)
        inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError, shape_inference.InferenceError) as error:
        reason = (str(error).splitlines() or ["it is damaged"])[0]
        raise UserError(f"'{path}' is not a whole ONNX file: {reason}", "export the network again") from error
    found = _graph(path, inferred)
    if all(layer.output_shape for layer in found.layers if layer.op in PRODUCTS):
        return found
    # Sizes that the file computes, such as those of a Split, are known to ONNX Runtime's inference alone.
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    return _graph(path, SymbolicShapeInference.infer_shapes(model, auto_merge=True).graph)


def _graph(path: Path, graph: Any) -> Graph:
    constants: dict[str, tuple[int, ...]] = {t.name: tuple(t.dims) for t in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise UserError(
            f"{path.name} has {len(inputs)} inputs and {len(graph.output)} outputs", "export it with one of each"
        )
    shapes = _shapes([*graph.value_info, *graph.input, *graph.output])
    alive, layers = {inputs[0]}, list[Layer]()
    for number, node in enumerate(graph.node):
        given = tuple(name for name in node.input if name in alive)
        if not given or node.op_type in _CONSTANTS:
            for name in node.output:  # computed of constants alone
                constants[name] = shapes.get(name, ()) or _constant_shape(node)
            continue
        alive.update(node.output)
        layers.append(_layer(node, number, given, shapes, constants))
    return Graph(tuple(layers), inputs[0], graph.output[0].name)


def with_names(path: Path, out: Path) -> Path:
    """The file itself where each operator has a name of its own; else a copy, as `out`, in which it has.

    Profilers tell operators by nothing but their names.
    """
    import onnx

    model = onnx.load(path)
    seen: set[str] = set()
    changed = False
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name, changed = f"{node.name or node.op_type}_n{number}", True
        seen.add(node.name)
    if not changed:
        return path
    onnx.save(model, out)
    return out


def bytes_of(layer: Layer, precision: str) -> float:
    """Bytes that a layer moves at least, in a precision (`fp32` where it is not known)."""
    size = {"bf16": 2, "fp16": 2, "int8": 1}.get(precision, _BYTES)
    return float(size * layer.elements)


def _layer(
    node: Any, number: int, given: tuple[str, ...], shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, tuple[int, ...]],
) -> Layer:  # fmt: skip
    attributes = {a.name: a for a in node.attribute}
    weight: tuple[int, ...] = ()
    if node.op_type in PRODUCTS:
        weight = next((constants[name] for name in node.input if constants.get(name)), ())
    return Layer(
        name=node.name or f"{node.op_type}_n{number}",
        op=node.op_type,
        inputs=given,
        outputs=tuple(name for name in node.output if name),
        input_shape=shapes.get(given[0], ()),
        output_shape=shapes.get(node.output[0], ()),
        weight_shape=weight,
        groups=attributes["group"].i if "group" in attributes else 1,
        permutation=tuple(attributes["perm"].ints) if "perm" in attributes else (),
    )


def _shapes(values: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    """Sizes by tensor, an open batch as 1; a tensor of which another size is not known has none."""
    found = {}
    for value in values:
        first, *others = [size.dim_value for size in value.type.tensor_type.shape.dim] or [1]
        if all(others):
            found[value.name] = (first or 1, *others)
    return found


def _constant_shape(node: Any) -> tuple[int, ...]:
    return next((tuple(a.t.dims) for a in node.attribute if a.name == "value"), ())


def _images(shape: tuple[int, ...]) -> int:
    """Places of a feature map (batch, channels, ...) in all its examples."""
    return math.prod((*shape[:1], *shape[2:]))
