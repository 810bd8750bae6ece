"""Rounded networks: what is exported computes what was trained."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from torch.ao.quantization import FakeQuantize

from nas.data import ImageSplit
from nas.data.images import image_input
from nas.deploy.onnx import export_onnx
from nas.errors import UserError
from nas.finetune.quantisation import calibrate, calibration_inputs, export_rounded, freeze_ranges
from nas.networks.description import NetworkDescription
from nas.runtimes import load_runtime
from nas.runtimes.cpu import largest_int8_weight
from nas.tasks import TASKS
from nas.tasks.examples import Examples
from nas.training.rounding import LARGEST_WEIGHT, Rounded, ranges, rounded
from search_spaces import TensorSpec
from search_spaces.modules import folded, set_norm_statistics
from tests.nas.small_runs import small_description


def built(description: NetworkDescription) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build()
        set_norm_statistics(network, torch.rand(8, 3, 32, 32))
    return network.eval()


def quantised(
    images: Examples[ImageSplit], description: NetworkDescription | None = None, largest_weight: int = LARGEST_WEIGHT
) -> torch.nn.Module:
    network = rounded(folded(built(description or small_description())), largest_weight=largest_weight)
    task = TASKS["classification"]
    objective = task.objective(network, images, task.recipe(), device=torch.device("cpu"))
    calibrate(network, calibration_inputs(objective, 16, 0))
    return network


def test_weights_and_inputs_have_256_values_and_still_learn(images: Examples[ImageSplit]) -> None:
    network = quantised(images)
    layers = [m for m in network.modules() if isinstance(m, Rounded)]
    seen: list[torch.Tensor] = []
    for layer in layers:
        channel = layer.weights(layer.layer.weight)[0].flatten()
        assert torch.allclose(channel, (channel / layer.weights.scale[0]).round() * layer.weights.scale[0], atol=1e-6)
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(torch.rand(2, 3, 32, 32)).square().sum().backward()
    assert all(layer.layer.weight.grad is not None for layer in layers)
    assert len(seen) == len(layers)
    assert all(len(values.unique()) <= 256 for values in seen)


def test_the_exported_file_computes_what_was_trained(images: Examples[ImageSplit], tmp_path: Path) -> None:
    network = freeze_ranges(quantised(images)).eval()
    path = export_rounded(network, image_input(32), tmp_path / "model.onnx")
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("DequantizeLinear") == sum(isinstance(m, FakeQuantize) for m in network.modules())
    weights = sum(m.layer.weight.numel() for m in network.modules() if isinstance(m, Rounded))
    assert path.stat().st_size < 2 * weights, "weights are stored in bytes"
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


class Untraceable(nn.Module):
    """Its forward asks what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out.relu() if x.shape[2] > 4 else out


def test_a_module_that_cannot_be_traced_is_taken_whole(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 4, 3), Untraceable(), nn.Flatten(), nn.Linear(4 * 6 * 6, 3)).eval()
        images = torch.rand(8, 3, 8, 8)
    with torch.no_grad():
        plain = network(images).numpy()
    student = rounded(network)
    calibrate(student, iter([images]))
    assert sum(isinstance(m, Rounded) for m in student.modules()) == 3
    path = export_rounded(freeze_ranges(student).eval(), TensorSpec((3, 8, 8)), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    got = np.concatenate([session.run(None, {"input": image[None]})[0] for image in images.numpy()])
    assert np.abs(got - plain).max() < 0.1 * np.abs(plain).max()
    assert not np.array_equal(got, plain)  # it is rounded


def test_a_network_that_cannot_be_traced_itself_is_named() -> None:
    with pytest.raises(UserError, match="Untraceable cannot be traced"):
        rounded(Untraceable())


@pytest.mark.parametrize("largest", [64, 127])
def test_no_weight_is_larger_than_asked_for(images: Examples[ImageSplit], largest: int, tmp_path: Path) -> None:
    network = freeze_ranges(quantised(images, largest_weight=largest)).eval()
    path = export_rounded(network, image_input(32), tmp_path / "model.onnx")
    tensors = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    weights = [tensor for tensor in tensors if tensor.dtype == np.int8 and tensor.ndim > 1]
    assert len(weights) == sum(isinstance(m, Rounded) for m in network.modules())
    assert {int(np.abs(tensor.astype(int)).max()) for tensor in weights} == {largest}


def test_the_optimised_file_agrees_on_this_processor(images: Examples[ImageSplit], tmp_path: Path) -> None:
    """Without dot products of 8 bits, products of large weights saturated: answers were others."""
    network = freeze_ranges(quantised(images, largest_weight=largest_int8_weight(None))).eval()
    path = export_rounded(network, image_input(32), tmp_path / "model.onnx")
    pixels = images.preprocess.array(images.val.images[:8])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    got = np.concatenate([session.run(None, {"input": image[None]})[0] for image in pixels])
    with torch.no_grad():
        expected = network(torch.from_numpy(pixels)).numpy()
    assert np.abs(got - expected).mean() < 0.05 * np.abs(expected).mean()


def test_validation_images_move_no_range(images: Examples[ImageSplit]) -> None:
    network = quantised(images)

    def found() -> list[torch.Tensor]:
        return [torch.cat([r.scale, r.activation_post_process.max_val[None]]) for r in ranges(network)]

    network.eval()
    before = found()
    network(10 * torch.rand(4, 3, 32, 32))
    assert all(map(torch.equal, found(), before))
    network.train()
    network(10 * torch.rand(4, 3, 32, 32))
    assert not any(map(torch.equal, found(), before))


def test_ranges_are_restored_with_the_weights(images: Examples[ImageSplit]) -> None:
    first, second = quantised(images), rounded(folded(built(small_description())))
    second.load_state_dict(first.state_dict())
    pixels = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(freeze_ranges(first).eval()(pixels), freeze_ranges(second).eval()(pixels))


def integer_operators(path: Path) -> Counter[str]:
    """The operators in int8 that ONNX Runtime makes of a file."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)
    return Counter({kind: count for kind, count in kinds.items() if kind.startswith(("QLinear", "QGemm"))})


@pytest.mark.parametrize(
    "description",
    [
        small_description(),
        NetworkDescription.of_baseline("resnet10_w50", (3,), image_input(32)),
        NetworkDescription.of_baseline("mobilenet_v3_small", (3,), image_input(32)),
        pytest.param(NetworkDescription.of_baseline("efficientnet_b0", (3,), image_input(32)), marks=pytest.mark.slow),
        pytest.param(NetworkDescription.of_baseline("regnet_y_400mf", (3,), image_input(32)), marks=pytest.mark.slow),
    ],
    ids=lambda description: str(getattr(description.source, "space", description.source)),
)
def test_onnxruntime_computes_as_much_in_int8_as_after_quantisation_without_training(
    description: NetworkDescription, images: Examples[ImageSplit], tmp_path: Path
) -> None:
    aware = export_rounded(quantised(images, description), image_input(32), tmp_path / "aware.onnx")
    plain = export_onnx(built(description), image_input(32), tmp_path / "plain.onnx")
    pixels = images.preprocess.array(images.train.images[:16])
    mine = integer_operators(aware)
    theirs = integer_operators(load_runtime("onnxruntime").prepare(plain, "int8", tmp_path, pixels))
    assert theirs["QLinearConv"] > 0
    assert {kind: count for kind, count in theirs.items() if mine[kind] < count} == {}
