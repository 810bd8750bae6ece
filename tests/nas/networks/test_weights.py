"""Weights of files: those of just this network are taken, also without the head, and all others refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nas.data.images import image_input
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.networks.weights import load_weights, weights_of
from nas.tasks.classification.baselines import BASELINES


def build(classes: int = 5, resolution: int = 64, name: str = "resnet10_w50") -> torch.nn.Module:
    return BASELINES[name].build(BASELINES[name].signature((classes,), image_input(resolution)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(weights_of(build()))
    return path


def same(one: torch.nn.Module, other: torch.nn.Module) -> set[str]:
    return {name for name, tensor in one.state_dict().items() if torch.equal(tensor, other.state_dict()[name])}


def test_all_of_it(file: Path) -> None:
    first, second = build(), build()
    assert load_weights(first, file)
    assert load_weights(second, file, sha256=sha256_of(file), classes=(5, 5))
    assert same(first, second) == set(first.state_dict())


def test_a_layer_in_two_places(tmp_path: Path) -> None:
    class Shared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(2, 2)
            self.b = self.a

    first, second = Shared(), Shared()
    (tmp_path / "shared.safetensors").write_bytes(weights_of(first))
    assert load_weights(second, tmp_path / "shared.safetensors")
    assert same(first, second) == {"a.weight", "a.bias", "b.weight", "b.bias"}


def test_another_number_of_classes_keeps_its_own_head(file: Path) -> None:
    source, other = build(), build(classes=9)
    load_weights(source, file)
    head = other.state_dict()["fc.weight"].clone()
    assert not load_weights(other, file, classes=(5, 9))
    assert torch.equal(other.state_dict()["fc.weight"], head)
    body = set(other.state_dict()) - {"fc.weight", "fc.bias"}
    assert body <= {n for n in body if torch.equal(source.state_dict()[n], other.state_dict()[n])}
    with pytest.raises(UserError, match=r"2 tensors differ, the first is 'fc\.bias'"):
        load_weights(build(classes=9), file)


def test_another_network_is_refused_with_the_tensors_that_differ(file: Path) -> None:
    for other in (build(name="resnet10"), build(resolution=32)):  # wider; another stem
        before = weights_of(other)
        with pytest.raises(UserError, match=r"holds the weights of another network: \d+ tensors differ, the first is"):
            load_weights(other, file, classes=(5, 5))
        assert weights_of(other) == before


def test_files_that_are_no_weights(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    with pytest.raises(UserError, match="was changed after it was written"):
        load_weights(build(), file, sha256="0" * 64)
    wrong = {b"": "not a whole", b"\x80\x04\x95pickle": "is a pickle", whole[:-9]: "not a whole"}
    for content, sentence in wrong.items():
        file.write_bytes(content)
        with pytest.raises(UserError, match=sentence):
            load_weights(build(), file)
    with pytest.raises(UserError, match="does not exist"):
        load_weights(build(), tmp_path / "absent.safetensors")
    save_file({"weight": torch.zeros(1)}, file)
    with pytest.raises(UserError, match="another network"):
        load_weights(build(), file)
