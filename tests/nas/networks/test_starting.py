"""Trained networks of a library, as beginnings of trainings on other data."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torchvision.models import get_model, get_model_weights

from nas.data.images import ImageData, Preprocess, image_input
from nas.errors import UserError
from nas.networks.find import find_network
from nas.networks.starting import StartingNetwork, network_to_start_from
from nas.tasks.classification.data.registry import load_dataset
from tests.nas.detectors import rectangle_data

NAME, SIDE = "squeezenet1_1", 32
IMAGENET = Preprocess((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture(scope="module")
def digits() -> ImageData:
    data = load_dataset("digits")
    assert isinstance(data, ImageData)
    return data


def of_classes(count: int) -> torch.nn.Module:
    torch.manual_seed(count)
    network: torch.nn.Module = get_model(NAME, weights=None, num_classes=count)
    return network.eval()


def begun(text: str, data: ImageData, seed: int = 0) -> StartingNetwork:
    return network_to_start_from(find_network(text), data, image_input(SIDE), seed)


def test_all_but_the_last_layer_of_a_file_is_kept(digits: ImageData, tmp_path: Path) -> None:
    source = of_classes(7)
    save_file(source.state_dict(), tmp_path / "seven.safetensors")
    found = begun(f"torchvision:{NAME}:{tmp_path / 'seven.safetensors'}", digits)
    assert not found.whole
    assert found.description.signature.output.size == (10,)
    assert (found.weights, found.preprocess) == ("seven.safetensors", IMAGENET)
    theirs = source.state_dict()
    new = {name for name, tensor in found.network.state_dict().items() if tensor.shape != theirs[name].shape}
    assert new == {"classifier.1.weight", "classifier.1.bias"}
    for name, tensor in found.network.state_dict().items():
        assert name in new or torch.equal(tensor, theirs[name])
    with torch.inference_mode():
        assert found.network(torch.zeros(2, 3, SIDE, SIDE)).shape == (2, 10)


def test_the_seed_draws_the_last_layer_alone(digits: ImageData, tmp_path: Path) -> None:
    save_file(of_classes(7).state_dict(), tmp_path / "seven.safetensors")
    text = f"torchvision:{NAME}:{tmp_path / 'seven.safetensors'}"
    one, same, other = (begun(text, digits, seed) for seed in (1, 1, 2))
    heads = [found.network.state_dict()["classifier.1.weight"] for found in (one, same, other)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert one.sha256 == other.sha256


def test_a_file_of_as_many_classes_is_kept_whole(digits: ImageData, tmp_path: Path) -> None:
    source = of_classes(10)
    save_file(source.state_dict(), tmp_path / "ten.safetensors")
    found = begun(f"torchvision:{NAME}:{tmp_path / 'ten.safetensors'}", digits)
    assert found.whole
    assert torch.equal(found.network.state_dict()["classifier.1.weight"], source.state_dict()["classifier.1.weight"])


def test_what_lies_beside_the_weights_says_how_they_were_trained(digits: ImageData, tmp_path: Path) -> None:
    save_file(of_classes(7).state_dict(), tmp_path / "seven.safetensors")
    (tmp_path / "preprocess.json").write_text('{"mean": [0.1, 0.1, 0.1], "std": [0.2, 0.2, 0.2]}')
    found = begun(f"torchvision:{NAME}:{tmp_path / 'seven.safetensors'}", digits)
    assert found.preprocess == Preprocess((0.1, 0.1, 0.1), (0.2, 0.2, 0.2))


def test_published_weights_are_for_any_number_of_classes(digits: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    source, weights = of_classes(1000), get_model_weights(NAME).DEFAULT
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", lambda url, **how: dict(source.state_dict()))
    found = begun(f"torchvision:{NAME}", digits)
    assert (found.whole, found.weights, found.preprocess) == (False, f"torchvision's {weights.name}", IMAGENET)
    assert torch.equal(found.network.state_dict()["features.0.weight"], source.state_dict()["features.0.weight"])


def test_a_network_for_another_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is for classification, the data are for detection"):
        network_to_start_from(find_network(f"torchvision:{NAME}"), rectangle_data(), image_input(SIDE))
