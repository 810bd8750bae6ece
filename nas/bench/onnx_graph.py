"""The input of an ONNX file, and a copy of the file for another batch."""

from pathlib import Path
from typing import Any

import numpy as np

from nas.errors import UserError

TOLERANCE = 1e-3
"""Largest difference between an image alone and in a batch, as a share of the largest output: other kernels may add up
in another order."""


class FixedBatchError(UserError):
    """The graph computes something else, or nothing, with another batch."""

    def __init__(self, path: Path, batch: int, why: str) -> None:
        super().__init__(f"{path.name} cannot be changed to batch {batch}: {why}", "export it with that batch")


def image_input(path: Path) -> tuple[int, int | None, int | None]:
    """Channels, rows and columns of the one image that the network at `path` takes; None: left open.

    Raises:
        UserError: no ONNX file, or not a network of one float32 image input and one output.
    """
    graph = _read(path, weights=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise UserError(
            f"{path.name} has {len(inputs)} inputs and {len(graph.output)} outputs", "export it with one of each"
        )
    tensor = inputs[0].type.tensor_type
    sizes = [size.dim_value or None for size in tensor.shape.dim]
    import onnx

    if len(sizes) != 4 or sizes[1] is None or tensor.elem_type != onnx.TensorProto.FLOAT:
        raise UserError(
            f"the input of {path.name} is {_type_name(tensor.elem_type)} {sizes}",
            "export it with a float32 input (batch, channels, height, width)",
        )
    return sizes[1], sizes[2], sizes[3]


def with_batch(path: Path, batch: int, image: tuple[int, int, int], out: Path, tolerance: float = TOLERANCE) -> Path:
    """A copy of the network at `path` that takes `batch` images of shape `image` (channels, rows, columns), as `out`.

    Only the declared shapes are changed, so a graph that holds its batch inside as well (in a constant of a Reshape)
    is refused: an image must give the same output in a batch as alone.

    Raises:
        FixedBatchError: the batch cannot be changed.
    """
    import onnx

    model = _read(path, weights=True)
    weights = {tensor.name for tensor in model.graph.initializer}
    given = next(value for value in model.graph.input if value.name not in weights)
    before = given.type.tensor_type.shape.dim[0].dim_value or None
    for size, value in zip(given.type.tensor_type.shape.dim, (batch, *image), strict=True):
        size.dim_value = value
    del model.graph.value_info[:]
    for output in model.graph.output:
        first = output.type.tensor_type.shape.dim[:1]
        if first and first[0].dim_value in (0, before):
            first[0].dim_value = batch
    onnx.save(model, out)
    if before != batch:
        _check(path, out, batch, (before or 1, *image), tolerance)
    return out


def _check(path: Path, changed: Path, batch: int, shape: tuple[int, ...], tolerance: float) -> None:
    """Run both on the same images."""
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    images = np.random.default_rng(0).standard_normal((max(batch, shape[0]), *shape[1:]), dtype=np.float32)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        outputs = []
        for file, count in ((path, shape[0]), (changed, batch)):
            session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            outputs.append(session.run(None, {session.get_inputs()[0].name: images[:count]})[0])
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
        raise FixedBatchError(path, batch, "an image then gives another output than in its own batch")


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


def _type_name(elem_type: int) -> str:
    import onnx

    return str(onnx.TensorProto.DataType.Name(elem_type)).lower()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
