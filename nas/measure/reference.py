"""The reference network: measured beside every other one, it shows how fast the device happens to be right now."""

import os
import stat
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np

from nas.files.cache import user_cache
from nas.files.writing import write_whole
from nas.runtimes.base import Inputs, Outputs, Session
from nas.runtimes.torch_graph import GraphDevice, graph_session
from search_spaces.signature import TensorSpec

_FILE = "reference-1.onnx"
"""Name of the file; its number changes with the network, so that an old file is never taken for a new one."""
_INPUT = TensorSpec((3, 32, 32))
_WIDTHS = (32, 64, 64)


def cache_folder() -> Path:
    """Folder of the file: the user's cache, or a temporary folder where that cannot be written."""
    folder = user_cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"nas-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not _is_private(folder):  # anybody can guess its name, and what lies in it is loaded
            return Path(tempfile.mkdtemp(prefix="nas-"))
    if os.access(folder, os.W_OK):
        return folder
    return Path(tempfile.mkdtemp(prefix="nas-"))


def _is_private(folder: Path) -> bool:
    """True if `folder` is a folder (not a link to one) of this user, into which nobody else can put a file."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def reference_model(folder: Path | None = None) -> Path | None:
    """Path of the reference network (a few convolutions, about a millisecond on one core), written if absent.

    None where it cannot be run because ONNX Runtime, or onnx to write it, is not installed: use `MatmulReference`.
    """
    if find_spec("onnxruntime") is None:
        return None
    path = (folder or cache_folder()) / _FILE
    if path.exists():
        return path
    if find_spec("onnx") is None:
        return None
    write_whole(path, _build())
    return path


class MatmulReference:
    """Stands in for the reference network where ONNX Runtime is absent: matrix products in numpy."""

    input, batch = _INPUT, 1

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._weights = rng.standard_normal((3, 256, 256), dtype=np.float32) / np.float32(16)

    def run(self, inputs: Inputs) -> Outputs:
        features: Outputs = np.resize(inputs, (256, 256))
        for weight in self._weights:
            features = features @ weight
        return features[: len(inputs)]


_GRAPH_INPUT, _GRAPH_BATCH = TensorSpec((64, 64, 64)), 8
_GRAPH_WIDTHS = (128, 256, 256)
"""31 GMACs: about a millisecond at 60 TFLOP/s, so that the device's arithmetic takes far longer than the copies."""


def graph_reference(graphs: GraphDevice) -> Session:
    """The reference network of a device that replays recorded work: a few convolutions in PyTorch, fp32.

    Raises whatever PyTorch raises where the device cannot be used.
    """
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        widths = (_GRAPH_INPUT.shape[0], *_GRAPH_WIDTHS)
        layers = [
            layer for before, after in pairwise(widths) for layer in (nn.Conv2d(before, after, 3, padding=1), nn.ReLU())
        ]
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return graph_session(network, torch.float32, _GRAPH_INPUT, _GRAPH_BATCH, graphs)


def _build() -> bytes:
    """The network as an ONNX file, from seeded noise at a scale that keeps activations near one (no denormals)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, last, channels = [], [], "input", _INPUT.shape[0]
    for index, width in enumerate(_WIDTHS):
        scale = np.float32(np.sqrt(2.0 / (channels * 9)))
        kernel = rng.standard_normal((width, channels, 3, 3), dtype=np.float32) * scale
        weights.append(numpy_helper.from_array(kernel, f"kernel{index}"))
        nodes.append(helper.make_node("Conv", [last, f"kernel{index}"], [f"conv{index}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"conv{index}"], [f"relu{index}"]))
        last, channels = f"relu{index}", width
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "reference",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, _INPUT.batched(1))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, channels))],
        weights,
    )
    # Old versions on purpose: every ONNX Runtime still in use reads them.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content
