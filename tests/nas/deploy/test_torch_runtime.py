"""The torch runtime on networks as the engine saves them."""

from pathlib import Path

import numpy as np
import torch

from nas.data.images import image_input
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.networks.description import NetworkDescription, save_network
from nas.runtimes import load_runtime
from search_spaces.modules import set_norm_statistics


def test_saved_network_runs_as_its_onnx_file_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    description = NetworkDescription.of_baseline("resnet10_w50", (3,), image_input(32))
    network = description.build()
    set_norm_statistics(network, torch.randn(16, 3, 32, 32))
    save_network(network, description, tmp_path / "model.network.json")
    onnx = export_onnx(network, image_input(32), tmp_path / "model.onnx")
    images = np.random.default_rng(0).normal(size=(3, 3, 32, 32)).astype(np.float32)
    outputs = []
    for deployment in (Deployment("torch", "fp32", 1), Deployment("onnxruntime", "fp32", 1)):
        runtime = load_runtime(deployment.runtime)
        path = runtime.prepare(onnx, deployment.precision, tmp_path, None)
        outputs.append(runtime.load(path, deployment).run(images))
    assert np.abs(outputs[0] - outputs[1]).max() < 1e-4
    eager = Deployment("torch", "fp32", 1)
    measured = measure([MeasureRequest(tmp_path / "model.network.json", eager)], sessions=1, seconds_per_model=0.05)
    assert measured[0].failed is None
    assert measured[0].p50_ms > 0
