"""The baselines build and run."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from nas.data.images import image_input
from nas.errors import MissingDependencyError, UnknownNameError
from nas.networks.description import NetworkDescription, load_network, read_description, save_network
from nas.tasks import task_of_baseline
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


def test_the_table_is_what_is_iterated_over() -> None:
    assert len(BASELINES) == len(list(BASELINES)) == 9
    assert not any(":" in name for name in BASELINES)
    assert "resnet18" in BASELINES
    for name in ("resnet19", "torchvision:resnet19", "torchvision:", "torchvision:resnet10", "detr:resnet18"):
        assert name not in BASELINES


def test_networks_of_torchvision_as_published() -> None:
    """Without the stem for small images, and with one answer also in training."""
    assert parameters("torchvision:resnet18") == 11_689_512
    published, table = (
        built(name, 7, 32).state_dict()["conv1.weight"].shape for name in ("torchvision:resnet18", "resnet18")
    )
    assert (published[-1], table[-1]) == (7, 3)
    for name, side in (("squeezenet1_0", 32), ("googlenet", 32), ("inception_v3", 96)):
        network = built(f"torchvision:{name}", 7, side)
        assert network(torch.zeros(2, 3, side, side)).shape == (2, 7)


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_networks_of_timm() -> None:
    with torch.inference_mode():
        assert built("timm:resnet10t", 7, 32).eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert "timm:resnet18.a1_in1k" in BASELINES
    for name in ("timm:resnet19", "timm:resnet18.nobody", "timm:hf-hub:timm/resnet18", "timm:"):
        assert name not in BASELINES


def test_without_timm_its_networks_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nas.tasks.classification.baselines.find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="timm is not installed"):
        BASELINES["timm:resnet10t"]
    assert "resnet18" in BASELINES


@pytest.mark.parametrize("name", ["torchvision:squeezenet1_0", "timm:resnet18"])
def test_a_description_by_such_a_name(name: str, tmp_path: Path) -> None:
    if name.startswith("timm:"):
        pytest.importorskip("timm")
    description = NetworkDescription.of_baseline(name, (10,), image_input(64))
    save_network(description.build(), description, tmp_path / "x.network.json")
    assert read_description(tmp_path / "x.network.json") == description
    assert description.task == task_of_baseline(name) == "classification"
    with torch.inference_mode():
        assert load_network(tmp_path / "x.network.json")(torch.zeros(1, 3, 64, 64)).shape == (1, 10)
    with pytest.raises(UnknownNameError, match=f"unknown network '{name}x'"):
        NetworkDescription.of_baseline(name + "x", (10,), image_input(64))
