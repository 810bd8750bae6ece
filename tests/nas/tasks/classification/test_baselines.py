"""The baselines build and run."""

import pytest
import torch

from nas.data.images import image_input
from nas.tasks.classification.baselines import BASELINES


def built(name: str, classes: int, resolution: int) -> torch.nn.Module:
    model = BASELINES[name]
    return model.build(model.signature((classes,), image_input(resolution)))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("resolution", [32, 64])
def test_builds_and_runs(name: str, resolution: int) -> None:
    network = built(name, 7, resolution).eval()
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, resolution, resolution)).shape == (2, 7)
    assert BASELINES[name].description


def parameters(name: str, classes: int = 1000) -> int:
    return sum(p.numel() for p in built(name, classes, 224).parameters())


def test_sizes_are_the_published_ones() -> None:
    assert parameters("resnet18") == 11_689_512
    assert parameters("resnet50") == 25_557_032
    assert parameters("mobilenet_v3_large") == 5_483_032
    # Four of resnet18's eight blocks; pytorchcv's resnet10 has the same count.
    assert parameters("resnet10") == 5_418_792
    assert parameters("resnet10_w50") < parameters("resnet10_w75") < parameters("resnet10")


@pytest.mark.parametrize("name", ["resnet10", "resnet18"])
def test_small_inputs_keep_more_resolution(name: str) -> None:
    strides = {}
    for resolution in (32, 64):
        network = built(name, 2, resolution).eval()
        shapes: list[int] = []
        last = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)][-1]
        last.register_forward_hook(lambda _, __, output, shapes=shapes: shapes.append(output.shape[-1]))
        with torch.inference_mode():
            network(torch.zeros(1, 3, resolution, resolution))
        strides[resolution] = resolution // shapes[0]
    assert strides == {32: 8, 64: 32}
