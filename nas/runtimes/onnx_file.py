"""Input of an ONNX file, and those of its nodes that make the output."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.errors import UserError
from search_spaces.signature import DType

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


VALUES_KEY = "input_values"
"""Entry of a file's metadata: how many values an input of integers takes. A graph does not tell it."""
_TYPES: Mapping[str, tuple[DType, int | None]] = {
    "float": ("float32", None),
    "int64": ("int64", 2),
    "uint8": ("uint8", 256),
}
"""ONNX's name of a type -> ours, and the number of values that an input takes where the file does not say: token ids 0
and 1 are in every vocabulary."""


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """The first input of a network."""

    name: str
    shape: tuple[int | None, ...]
    """Shape of the input with the batch; None where a size is left open."""
    dtype: DType
    values: int | None


def input_type(type_name: str, metadata: Mapping[str, str]) -> tuple[DType, int | None] | None:
    """Our name and the number of values of an input, from ONNX's name (`float`); None for types that no input has."""
    if type_name not in _TYPES:
        return None
    dtype, values = _TYPES[type_name]
    said = metadata.get(VALUES_KEY, "")
    return dtype, int(said) if values is not None and said.isdecimal() else values


def read_input(path: Path) -> OnnxInput:
    """The input that the file at `path` declares; weights are not read.

    Raises:
        UserError: no such file, or no ONNX network with an input of a known type.
    """
    import onnx

    model = _read(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    entry = next((value for value in model.graph.input if value.name not in weights), None)
    if entry is None:
        raise UserError(f"{path} is no network with an input", "export the network again")
    tensor = entry.type.tensor_type
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    known = input_type(name, {item.key: item.value for item in model.metadata_props})
    if known is None:
        raise UserError(
            f"the input of {path.name} is of type {name}", f"export it with an input of {', '.join(_TYPES)}"
        )
    return OnnxInput(entry.name, tuple(size.dim_value or None for size in tensor.shape.dim), *known)


def output_nodes(path: Path, layers: int = 1) -> tuple[str, ...]:
    """Names of the last `layers` layers with weights on every way to the output, and of all nodes behind them.

    Rounding hurts most there: little follows that could make up for it. Raises as `read_input` does.
    """
    graph = _read(path).graph
    made_by = {output: node for node in graph.node for output in node.output}
    left: dict[str, int] = {}
    """Node -> the most layers that may still follow towards the input."""
    wanted = [(output.name, layers) for output in graph.output]
    while wanted:
        name, allowed = wanted.pop()
        node = made_by.get(name)
        if node is None or left.get(node.name, 0) >= allowed:
            continue
        left[node.name] = allowed
        remaining = allowed - (node.op_type in _WEIGHTED)
        wanted += [(value, remaining) for value in node.input if remaining]
    return tuple(left)


def _read(path: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load(path, load_external_data=False)
    except (DecodeError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}", "export the network again") from error
