"""The network of `tests.nas.tiny` in PyTorch, with the weights of the ONNX file beside the given one."""

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import nn


def load_tiny_network(network_file: Path) -> nn.Module:
    exported = onnx.load(network_file.with_name(network_file.name.removesuffix(".network.json") + ".onnx"))
    weights = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in exported.graph.initializer}
    width, classes = weights["kernel"].shape[0], weights["dense"].shape[0]
    network = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes, bias=False),
    )
    network.load_state_dict({"0.weight": weights["kernel"], "4.weight": weights["dense"]})
    return network.eval()
