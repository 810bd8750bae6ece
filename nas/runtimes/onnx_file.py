"""What an ONNX file says about its input."""

from dataclasses import dataclass
from pathlib import Path

from nas.errors import UserError


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
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except (DecodeError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}", "export the network again") from error
    if not graph.input:
        raise UserError(f"{path} is no network with an input", "export the network again")
    sizes = graph.input[0].type.tensor_type.shape.dim
    return OnnxInput(graph.input[0].name, tuple(size.dim_value or None for size in sizes))
