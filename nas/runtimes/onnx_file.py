"""What an ONNX file says about its input, and which of its nodes make the output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.errors import UserError

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """The first input of a network."""

    name: str
    shape: tuple[int | None, ...]
    """None where a size is left open."""


def read_input(path: Path) -> OnnxInput:
    """The input that the file at `path` declares; weights are not read.

    Raises:
        UserError: no such file, or no ONNX network with an input.
    """
    graph = _read_graph(path)
    if not graph.input:
        raise UserError(f"{path} is no network with an input", "export the network again")
    sizes = graph.input[0].type.tensor_type.shape.dim
    return OnnxInput(graph.input[0].name, tuple(size.dim_value or None for size in sizes))


def output_nodes(path: Path, layers: int = 1) -> tuple[str, ...]:
    """Names of the last `layers` layers with weights on every way to the output, and of all nodes behind them.

    Rounding hurts most there: little follows that could make up for it. Raises as `read_input` does.
    """
    graph = _read_graph(path)
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


def _read_graph(path: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load(path, load_external_data=False).graph
    except (DecodeError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}", "export the network again") from error
