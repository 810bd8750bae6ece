"""Rounded networks: what is exported computes what was trained."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from nas.finetune.images import Images
from nas.finetune.qat import Rounded, calibrate, export_rounded, freeze_ranges, rounded
from search_spaces.modules import folded
from tests.nas.finetune.conftest import small_description


def quantised(images: Images) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = rounded(folded(small_description().build()))
    calibrate(network, images, 16, 0)
    return network


def test_weights_and_inputs_have_256_values_and_still_learn(images: Images) -> None:
    network = quantised(images)
    layers = [m for m in network.modules() if isinstance(m, Rounded)]
    assert not any(isinstance(m, torch.nn.Conv2d) for m in network.children())
    for layer in layers:
        channel = layer.weights(layer.layer.weight)[0].flatten()
        assert torch.allclose(channel, (channel / layer.weights.scale[0]).round() * layer.weights.scale[0], atol=1e-6)
        assert int(layer.inputs.fake_quant_enabled) == 1
    network(torch.rand(2, 3, 32, 32)).square().sum().backward()
    assert all(layer.layer.weight.grad is not None for layer in layers)


def test_the_exported_file_computes_what_was_trained(images: Images, tmp_path: Path) -> None:
    network = freeze_ranges(quantised(images)).eval()
    path = export_rounded(network, 32, tmp_path / "model.onnx")
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("DequantizeLinear") >= 2 * sum(isinstance(m, Rounded) for m in network.modules())
    pixels = images.preprocess.array(images.val.images[:8])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    got = np.concatenate([session.run(None, {"input": image[None]})[0] for image in pixels])
    with torch.no_grad():
        expected = network(torch.from_numpy(pixels)).numpy()
    # A value on the edge between two steps may be rounded either way.
    assert np.abs(got - expected).mean() < 0.02 * np.abs(expected).mean()
    assert (got.argmax(1) == expected.argmax(1)).mean() >= 0.8


def test_ranges_are_restored_with_the_weights(images: Images) -> None:
    first, second = quantised(images), rounded(folded(small_description().build()))
    second.load_state_dict(first.state_dict())
    pixels = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(freeze_ranges(first).eval()(pixels), freeze_ranges(second).eval()(pixels))
