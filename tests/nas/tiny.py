"""Tiny ONNX networks for tests: built from seeded noise, no torch."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save_model

CLASSES = 7


def calibration_images(count: int = 16, size: int = 24, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, 3, size, size), dtype=np.float32)


def write_tiny_network(
    path: Path, *, batch: int | str = 1, size: int = 24, width: int = 16, scale: float = 1.0, outputs: int = 1
) -> Path:
    """Conv - Relu - GlobalAveragePool - Flatten - Gemm; input `input`, output `logits` `(batch, 7)`.

    `scale` multiplies the last weights: NaN makes a network whose output is not a number.
    """
    rng = np.random.default_rng(1)
    kernel = rng.standard_normal((width, 3, 3, 3), dtype=np.float32) / np.float32(5)
    dense = rng.standard_normal((CLASSES, width), dtype=np.float32) * np.float32(scale)
    nodes = [
        helper.make_node("Conv", ["input", "kernel"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("GlobalAveragePool", ["relu"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense"], ["logits"], transB=1),
    ]
    declared = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (batch, CLASSES))]
    if outputs == 2:
        declared.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, (batch, width)))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, (batch, 3, size, size))],
        declared,
        [numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(dense, "dense")],
    )
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path
