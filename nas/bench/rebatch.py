"""A delivered network, whatever its runtime's format, for another number of examples per call."""

from pathlib import Path

from nas.bench.onnx_graph import TOLERANCE, FixedBatchError, with_batch
from search_spaces import TensorSpec

INT8_TOLERANCE = 0.05
"""Tolerance for int8, like `onnx_graph.TOLERANCE`: a last bit may move a value to the next of 256 steps."""


def rebatched(path: Path, batch: int, input: TensorSpec, out: Path, tolerance: float = TOLERANCE) -> Path:
    """A copy of the network at `path` (`.onnx`, or OpenVINO's `.xml`) that takes `batch` examples of `input`, as `out`.

    `out` ends in `.onnx`, or in `.xml` for OpenVINO, which reads both.

    Raises:
        FixedBatchError: the batch cannot be changed.
    """
    if out.suffix == ".onnx":
        return with_batch(path, batch, input, out, tolerance)
    import openvino

    network = openvino.Core().read_model(path)
    try:
        network.reshape(list(input.batched(batch)))
    except RuntimeError as error:
        raise FixedBatchError(path, batch, str(error).strip().partition("\n")[0]) from error
    if network.outputs[0].get_partial_shape()[0] != batch:
        raise FixedBatchError(path, batch, "its output keeps its shape")
    openvino.save_model(network, out, compress_to_fp16=False)
    return out
