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


def output_nodes(path: Path) -> tuple[str, ...]:
    """Names of the last layers with weights on every way to the output, and of all nodes behind them.

    Weights in int8 hurt most there: nothing follows that could make up for rounding. Raises as `read_input` does.
    """
    graph = _read_graph(path)
    made_by = {output: node for node in graph.node for output in node.output}
    found: dict[str, None] = {}
    wanted = [output.name for output in graph.output]
    while wanted:
        node = made_by.get(wanted.pop())
        if node is None or node.name in found:
            continue
        found[node.name] = None
        if node.op_type not in _WEIGHTED:
            wanted += node.input
    return tuple(found)


def _read_graph(path: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load(path, load_external_data=False).graph
    except (DecodeError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}", "export the network again") from error
