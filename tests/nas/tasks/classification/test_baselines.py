"""The opponents build, run, and load local weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nas.errors import UserError
from nas.tasks.classification.baselines import BASELINES


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("resolution", [32, 64])
def test_builds_and_runs(name: str, resolution: int) -> None:
    network = BASELINES[name].build(7, resolution).eval()
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, resolution, resolution)).shape == (2, 7)
    assert BASELINES[name].description


def parameters(name: str, classes: int = 1000) -> int:
    return sum(p.numel() for p in BASELINES[name].build(classes, 224).parameters())


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
        network = BASELINES[name].build(2, resolution).eval()
        shapes: list[int] = []
        last = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)][-1]
        last.register_forward_hook(lambda _, __, output, shapes=shapes: shapes.append(output.shape[-1]))
        with torch.inference_mode():
            network(torch.zeros(1, 3, resolution, resolution))
        strides[resolution] = resolution // shapes[0]
    assert strides == {32: 8, 64: 32}


def test_local_weights(tmp_path: Path) -> None:
    source = BASELINES["resnet10_w50"].build(5, 64)
    file = tmp_path / "weights.safetensors"
    save_file(source.state_dict(), file)
    same = BASELINES["resnet10_w50"].build(5, 64, weights=file)
    assert all(torch.equal(a, b) for a, b in zip(source.state_dict().values(), same.state_dict().values(), strict=True))
    other_head = BASELINES["resnet10_w50"].build(9, 64, weights=file)
    assert torch.equal(other_head.state_dict()["stem.0.weight"], source.state_dict()["stem.0.weight"])
    assert other_head.state_dict()["fc.weight"].shape[0] == 9


def test_unusable_weights(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    save_file(BASELINES["resnet10_w50"].build(5, 64).state_dict(), file)
    with pytest.raises(UserError, match="of another network"):
        BASELINES["resnet10"].build(5, 64, weights=file)
    with pytest.raises(UserError, match="of another network"):
        BASELINES["resnet10_w50"].build(5, 32, weights=file)  # another stem
    for content in (b"", b"\x80\x04pickle", file.read_bytes()[:-9]):
        file.write_bytes(content)
        with pytest.raises(UserError, match="cannot read weights"):
            BASELINES["resnet10_w50"].build(5, 64, weights=file)
    with pytest.raises(UserError, match="cannot read weights"):
        BASELINES["resnet10_w50"].build(5, 64, weights=tmp_path / "absent.safetensors")
