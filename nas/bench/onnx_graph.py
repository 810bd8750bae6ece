"""The input of an ONNX file, and a copy of the file for another batch."""

from pathlib import Path
from typing import Any

import numpy as np

from nas.deployment import CPU, DYNAMIC_INT8
from nas.errors import UserError
from nas.runtimes.devices import execution_providers
from nas.runtimes.onnx_file import read_input
from search_spaces import TensorSpec

IMAGE_AXES = 4
"""Batch, channels, rows and columns."""
TOLERANCE = 1e-3
"""Largest difference between an input alone and in a batch, as a share of the largest output: other kernels may add up
in another order."""


class FixedBatchError(UserError):
    """The graph computes something else, or nothing, with another batch."""

    def __init__(self, path: Path, batch: int, why: str) -> None:
        super().__init__(f"{path.name} cannot be changed to batch {batch}: {why}", "export it with that batch")


def input_of(path: Path, side: int | None) -> TensorSpec:
    """Input of the network at `path`.

    Args:
        side: rows and columns of an image whose size the file leaves open.

    Raises:
        UserError: no ONNX file, not a network of one input and one output, or an input whose size nothing says.
    """
    graph = _read(path, weights=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise UserError(
            f"{path.name} has {len(inputs)} inputs and {len(graph.output)} outputs", "export it with one of each"
        )
    declared = read_input(path)
    sizes = declared.shape
    if len(sizes) < 2:
        raise UserError(f"the input of {path.name} has shape {list(sizes)}", "export it with a batch axis")
    is_image = len(sizes) == IMAGE_AXES and sizes[1] is not None
    shape = [size or (side if is_image else None) for size in sizes[1:]]
    if None in shape:
        what, how = ("image", "say it: --resolution 224") if is_image else ("input", "export it with a fixed size")
        raise UserError(f"{path.name} leaves the size of its {what} open", how)
    return TensorSpec(tuple(int(size or 0) for size in shape), declared.dtype, declared.values)


def integers_of(path: Path) -> str | None:
    """`int8` or `nas.deployment.DYNAMIC_INT8`, as the network at `path` is quantised; None where it is not.

    Raises:
        UserError: no ONNX file.
    """
    operators = {node.op_type for node in _read(path, weights=False).graph.node}
    if "DynamicQuantizeLinear" in operators:
        return DYNAMIC_INT8
    return "int8" if "QuantizeLinear" in operators else None


def with_batch(path: Path, batch: int, input: TensorSpec, out: Path, tolerance: float = TOLERANCE) -> Path:
    """A copy of the network at `path` that takes `batch` examples of `input`, as `out`.

    Only the declared shapes are changed, so a graph that holds its batch inside as well (in a constant of a Reshape)
    is refused: an example must give the same output in a batch as alone.

    Raises:
        FixedBatchError: the batch cannot be changed.
    """
    import onnx

    model = _read(path, weights=True)
    weights = {tensor.name for tensor in model.graph.initializer}
    given = next(value for value in model.graph.input if value.name not in weights)
    before = given.type.tensor_type.shape.dim[0].dim_value or None
    for size, value in zip(given.type.tensor_type.shape.dim, input.batched(batch), strict=True):
        size.dim_value = value
    del model.graph.value_info[:]
    for output in model.graph.output:
        first = output.type.tensor_type.shape.dim[:1]
        if first and first[0].dim_value in (0, before):
            first[0].dim_value = batch
    onnx.save(model, out)
    if before != batch:
        _check(path, out, (before or 1, batch), input, tolerance)
    return out


def _check(path: Path, changed: Path, batches: tuple[int, int], input: TensorSpec, tolerance: float) -> None:
    """Run the file of the first batch and that of the second on the same inputs."""
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    examples, batch = input.draw(np.random.default_rng(0), max(batches)), batches[1]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        outputs = []
        for file, count in zip((path, changed), batches, strict=True):
            session = ort.InferenceSession(file, options, providers=execution_providers(CPU))
            outputs.append(session.run(None, {session.get_inputs()[0].name: examples[:count]})[0])
    except (
        errors.Fail,
        errors.InvalidArgument,
        errors.InvalidGraph,
        errors.NotImplemented,
        errors.RuntimeException,
    ) as error:
        raise FixedBatchError(path, batch, _first_line(error)) from error
    original, other = outputs
    if other.shape[:1] != (batch,):
        raise FixedBatchError(path, batch, f"its output then has shape {other.shape}")
    if not np.isfinite(original).all():
        return  # measuring will refuse it, whatever the batch
    both = min(len(original), batch)
    scale = float(np.abs(original).max()) or 1.0
    if not np.allclose(original[:both], other[:both], rtol=0, atol=tolerance * scale):
        raise FixedBatchError(path, batch, "an input then gives another output than in its own batch")


def _read(path: Path, *, weights: bool) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(path, load_external_data=weights)
    except (DecodeError, OSError, onnx.checker.ValidationError) as error:
        raise UserError(f"'{path}' is not an ONNX file: {error}", "export the network again") from error
    if not model.graph.node:
        raise UserError(f"'{path}' is not an ONNX file: it holds no network", "export the network again")
    return model


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
