"""Trained networks that somebody brings: what they are read from, and why others are refused."""

import json
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torchvision.models import get_model, get_model_weights

from nas.data.images import ImageData, Preprocess, image_input
from nas.errors import UnknownNameError, UserError
from nas.files.tensors import checksum
from nas.files.writing import sha256_of
from nas.networks.description import NetworkDescription, save_network
from nas.networks.find import find_network
from nas.networks.reference import load_reference
from nas.networks.starting import network_to_start_from
from nas.networks.teachers import load_teacher
from nas.tasks.classification.data.registry import load_dataset
from tests.nas.detectors import rectangle_data
from tests.nas.networks.test_find import other_kinds
from tests.nas.small_runs import small_description, write_data, write_run

needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
SMALL, IMAGES = "squeezenet1_0", image_input(32)


@pytest.fixture(scope="module")
def digits() -> ImageData:
    data = load_dataset("digits")
    assert isinstance(data, ImageData)
    return data


def of_torchvision(name: str = SMALL, classes: int = 10) -> torch.nn.Module:
    torch.manual_seed(0)
    network: torch.nn.Module = get_model(name, weights=None, num_classes=classes)
    return network.eval()


def saved(network: torch.nn.Module, path: Path) -> Path:
    save_file(network.state_dict(), path)
    return path


def same_answers(one: torch.nn.Module, other: torch.nn.Module, side: int = 32) -> bool:
    images = torch.randn(2, 3, side, side)
    with torch.inference_mode():
        return torch.equal(one(images), other(images))


def test_a_network_of_torchvision_with_a_file(digits: ImageData, tmp_path: Path) -> None:
    network = of_torchvision()
    file = saved(network, tmp_path / "mine.safetensors")
    text = f"torchvision:{SMALL}:{file}"
    found = load_reference(text, digits, IMAGES)
    assert (found.text, found.weights, found.sha256) == (text, "mine.safetensors", sha256_of(file))
    assert found.preprocess is None
    assert not found.network.training
    assert found.description == NetworkDescription.of_baseline(f"torchvision:{SMALL}", (10,), IMAGES)
    assert same_answers(found.network, network)
    own = Preprocess((0.3, 0.4, 0.5), (0.1, 0.2, 0.4))
    (tmp_path / "preprocess.json").write_text(json.dumps({"mean": own.mean, "std": own.std}))
    (tmp_path / "labels.json").write_text(json.dumps(digits.classes))
    assert load_reference(text, digits, IMAGES).preprocess == own
    (tmp_path / "labels.json").write_text(json.dumps(digits.classes[::-1]))
    with pytest.raises(UserError, match=r"knows other classes than 'digits' has, or in another order"):
        load_reference(text, digits, IMAGES)


@pytest.mark.parametrize("published", [False, True])
def test_of_two_variants_the_one_that_the_file_fits(published: bool, digits: ImageData, tmp_path: Path) -> None:
    source = "torchvision:resnet18" if published else "resnet18"
    network = NetworkDescription.of_baseline(source, (10,), IMAGES).build().eval()
    text = f"torchvision:resnet18:{saved(network, tmp_path / 'x.safetensors')}"
    found = load_reference(text, digits, IMAGES)
    assert found.description.source == source
    assert same_answers(found.network, network)
    teacher = load_teacher(text, digits, IMAGES, torch.device("cpu"))
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(teacher(images, features=False)[0], network(images))


@needs_timm
def test_a_network_of_timm_with_a_file(digits: ImageData, tmp_path: Path) -> None:
    import timm

    network = timm.create_model("resnet10t", num_classes=10).eval()
    text = f"timm:resnet10t:{saved(network, tmp_path / 'x.safetensors')}"
    found = load_reference(text, digits, IMAGES)
    assert found.description.source == "timm:resnet10t"
    assert same_answers(found.network, network)
    load_teacher(text, digits, IMAGES, torch.device("cpu"))
    with pytest.raises(UnknownNameError, match="unknown network 'timm:resnet10x'") as error:
        load_reference("timm:resnet10x", digits, IMAGES)
    assert "timm:resnet10t" in str(error.value.hint)


def test_networks_of_this_program(tmp_path: Path) -> None:
    data = load_dataset(str(write_data(tmp_path / "data.npz")))
    run = write_run(tmp_path / "run", small_description(), tmp_path / "data.npz")
    winner = run / "winners/1"
    network = small_description().build().eval()
    save_network(network, small_description(), tmp_path / "x.network.json")
    for text, file in (
        (f"{run}#1", winner / "model.safetensors"),
        (str(winner), winner / "model.safetensors"),
        (str(tmp_path / "x.network.json"), tmp_path / "x.safetensors"),
    ):
        found = load_reference(text, data, image_input(224))
        assert (found.description, found.weights) == (small_description(), file.name)
        assert found.sha256 == sha256_of(file)
    assert same_answers(found.network, network)
    other = write_run(tmp_path / "other", small_description(5), tmp_path / "data.npz")
    with pytest.raises(UserError, match="knows 5 classes, the data have 3"):
        load_reference(f"{other}#1", data, IMAGES)
    (winner / "model.safetensors").write_bytes((other / "winners/1/model.safetensors").read_bytes())
    with pytest.raises(UserError, match="was changed after it was written"):
        load_reference(f"{run}#1", data, IMAGES)


class Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def test_files_of_torch_save(digits: ImageData, tmp_path: Path) -> None:
    network = of_torchvision()
    tensors = network.state_dict()
    parallel = {f"module.{name}": tensor for name, tensor in tensors.items()}
    for name, content in (
        ("plain.pth", tensors),
        ("plain.pt", dict(tensors)),
        ("nested.pth", {"epoch": 3, "optimizer": {"lr": 0.1}, "state_dict": parallel}),
        ("model.pth", {"model": tensors, "args": None}),
    ):
        torch.save(content, tmp_path / name)
        found = load_reference(f"torchvision:{SMALL}:{tmp_path / name}", digits, IMAGES)
        assert same_answers(found.network, network)
        assert found.sha256 == sha256_of(tmp_path / name)
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    load_reference(f"torchvision:{SMALL}:{tmp_path / 'old.pth'}", digits, IMAGES)


def test_files_of_torch_save_that_are_no_weights(digits: ImageData, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    torch.save({"state_dict": Malicious(mark)}, tmp_path / "malicious.pth")
    torch.save(of_torchvision(), tmp_path / "module.pth")
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    torch.save(of_torchvision().state_dict(), tmp_path / "half.pth")
    (tmp_path / "half.pth").write_bytes((tmp_path / "half.pth").read_bytes()[:1000])
    torch.save(of_torchvision().state_dict(), tmp_path / "weights.bin")
    for name, sentence in {
        "malicious.pth": "holds more than tensors, which could run any code",
        "module.pth": "holds more than tensors, which could run any code",
        "empty.pth": "holds no tensors by name, nor under state_dict, model, model_state_dict",
        "list.pt": "holds no tensors by name",
        "half.pth": "is damaged, or no weights",
        "weights.bin": "is a pickle",
        "absent.pth": "does not exist",
    }.items():
        with pytest.raises(UserError, match=sentence) as error:
            load_reference(f"torchvision:{SMALL}:{tmp_path / name}", digits, IMAGES)
        assert "safetensors" in str(error.value.hint)
    assert not mark.exists()


def test_weights_of_another_network(digits: ImageData, tmp_path: Path) -> None:
    file = saved(of_torchvision("squeezenet1_1"), tmp_path / "x.safetensors")
    with pytest.raises(
        UserError, match=r"does not fit torchvision:squeezenet1_0: 12 missing \(features\.5.*of another shape \("
    ) as error:
        load_reference(f"torchvision:{SMALL}:{file}", digits, IMAGES)
    assert error.value.hint == f"it fits torchvision:squeezenet1_1: give torchvision:squeezenet1_1:{file}"
    with pytest.raises(
        UserError, match=r"does not fit torchvision:resnet18: 102 missing \(conv1\.weight, .*, \.\.\.\), 52 unexpected"
    ) as error:
        load_reference(f"torchvision:resnet18:{file}", digits, image_input(64))
    assert error.value.hint == "give the weights of just this architecture"
    saved(of_torchvision(classes=1000), file)
    with pytest.raises(UserError, match=r"knows 1000 classes, the data have 10"):
        load_reference(f"torchvision:{SMALL}:{file}", digits, IMAGES)


def test_files_of_today_and_of_old(digits: ImageData, tmp_path: Path) -> None:
    """Without counters of batch norms, with DenseNet's old names, and with answers for training alone."""
    network = of_torchvision("densenet121")
    old = {
        name.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): tensor
        for name, tensor in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    save_file(old, tmp_path / "densenet.safetensors")
    found = load_reference(f"torchvision:densenet121:{tmp_path / 'densenet.safetensors'}", digits, IMAGES)
    assert same_answers(found.network, network)
    training = get_model("googlenet", weights=None, num_classes=10, init_weights=False).eval()
    file = saved(training, tmp_path / "googlenet.safetensors")
    found = load_reference(f"torchvision:googlenet:{file}", digits, IMAGES)
    assert same_answers(found.network, training)


def test_networks_that_are_of_no_use(digits: ImageData, tmp_path: Path) -> None:
    for kind, found in other_kinds(tmp_path).items():
        if kind in ("architecture", "onnx"):
            with pytest.raises(UserError, match="of no use here") as error:
                load_reference(found.text, digits, IMAGES)
            assert "torchvision:NAME:FILE" in str(error.value.hint)
    with pytest.raises(UserError, match="no such network: 'nothing'"):
        load_reference("nothing", digits, IMAGES)
    with pytest.raises(UnknownNameError, match="unknown network 'torchvision:resnet19'") as error:
        load_reference("torchvision:resnet19", digits, IMAGES)
    assert "torchvision:resnet18" in str(error.value.hint)
    file = saved(of_torchvision(), tmp_path / "x.safetensors")
    with pytest.raises(UserError, match=r"takes no input of 3 x 8 x 8: "):
        load_reference(f"torchvision:{SMALL}:{file}", digits, image_input(8))


class OfMine(torch.nn.Module):
    """A network that only its author's package knows."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.body, self.last = torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.Linear(4, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.body(images).mean((2, 3)))
        return logits


def for_digits() -> torch.nn.Module:
    return OfMine(10)


def number() -> int:
    return 3


def unusual(width: int) -> torch.nn.Module:
    return OfMine(width)


ME = "tests.nas.networks.test_reference"


@pytest.mark.parametrize("function", ["OfMine", "for_digits"])
def test_a_network_that_a_function_builds(function: str, digits: ImageData, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = OfMine(10).eval()
    file = saved(network, tmp_path / "mine.safetensors")
    found = load_reference(f"{ME}:{function}:{file}", digits, IMAGES)
    assert found.description.source == f"python:{ME}:{function}"
    assert same_answers(found.network, network)
    assert NetworkDescription.from_json(found.description.to_json()) == found.description
    assert find_network(f"python:{ME}:{function}:{file}").published == f"{ME}:{function}", "as descriptions name it"
    assert load_teacher(f"{ME}:{function}:{file}", digits, IMAGES, torch.device("cpu")).network is not None
    begun = network_to_start_from(find_network(f"{ME}:{function}:{file}"), digits, IMAGES)
    assert (begun.whole, begun.preprocess) == (True, None)


def test_a_function_that_is_told_the_classes_builds_for_others(digits: ImageData, tmp_path: Path) -> None:
    file = saved(OfMine(7), tmp_path / "seven.safetensors")
    begun = network_to_start_from(find_network(f"{ME}:OfMine:{file}"), digits, IMAGES)
    assert not begun.whole
    assert begun.network(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_functions_that_build_no_network(digits: ImageData, tmp_path: Path) -> None:
    file = saved(OfMine(10), tmp_path / "mine.safetensors")
    for text, message in (
        (f"{ME}:absent:{file}", "there is no network .*:absent'"),
        (f"nowhere.at_all:build:{file}", "No module named 'nowhere'"),
        (f"{ME}:SMALL:{file}", "is no function but str"),
        (f"{ME}:number:{file}", "returns no network but int"),
        (f"{ME}:unusual:{file}", "cannot be called with num_classes alone"),
        (f"{ME}:OfMine", "names no weights"),
    ):
        with pytest.raises(UserError, match=message):
            load_reference(text, digits, IMAGES)


def test_another_task(tmp_path: Path) -> None:
    file = saved(of_torchvision(), tmp_path / "x.safetensors")
    for text in (f"torchvision:{SMALL}:{file}", f"torchvision:{SMALL}"):
        with pytest.raises(UserError, match="is for classification, the data are for detection"):
            load_reference(text, rectangle_data(), IMAGES)


@pytest.fixture
def thousand(digits: ImageData) -> ImageData:
    """Data with as many classes as ImageNet."""
    return replace(digits, classes=tuple(str(i) for i in range(1000)))


@pytest.mark.parametrize(("name", "mean"), [(SMALL, 0.485), ("googlenet", 0.5)])
def test_published_weights_of_torchvision(
    name: str, mean: float, thousand: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GoogLeNet undoes ImageNet's normalisation itself; here it is said to have another one."""
    arguments: dict[str, Any] = {"init_weights": False, "transform_input": True} if name == "googlenet" else {}
    source = get_model(name, weights=None, **arguments).eval()
    weights = get_model_weights(name).DEFAULT

    def downloaded(url: str, **how: Any) -> dict[str, torch.Tensor]:
        assert url == weights.url
        assert how["weights_only"]
        assert how["check_hash"]
        return dict(source.state_dict())

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", downloaded)
    found = load_reference(f"torchvision:{name}", thousand, IMAGES)
    assert found.weights == "torchvision's IMAGENET1K_V1"
    assert found.sha256 == checksum(found.network.state_dict())
    assert found.preprocess is not None
    assert found.preprocess.mean[0] == mean
    pixels, imagenet = torch.rand(2, 32, 32, 3) * 255, Preprocess((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.inference_mode():
        expected = source(imagenet.tensor(pixels))
        torch.testing.assert_close(found.network(found.preprocess.tensor(pixels)), expected, atol=1e-4, rtol=1e-4)


@needs_timm
def test_published_weights_of_timm(thousand: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    create, source = timm.create_model, timm.create_model("resnet10t").eval()
    monkeypatch.setattr(
        "timm.create_model", lambda name, pretrained, **how: source if pretrained else create(name, **how)
    )
    found = load_reference("timm:resnet10t", thousand, IMAGES)
    assert found.weights == "timm's resnet10t.c3_in1k"
    assert found.description.source == "timm:resnet10t"
    assert found.preprocess is not None
    assert found.preprocess.mean[0] == timm.get_pretrained_cfg("resnet10t").mean[0]
    assert same_answers(found.network, source)
    untrained = next(name for name in timm.list_models() if not timm.is_model_pretrained(name))
    with pytest.raises(UserError, match=f"'timm:{untrained}' names no weights, and none are published"):
        load_reference(f"timm:{untrained}", thousand, IMAGES)


def test_published_weights_that_cannot_be_had(
    digits: ImageData, thousand: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise URLError("no internet")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", unreachable)
    libraries = {"torchvision": SMALL}
    if find_spec("timm") is not None:
        monkeypatch.setattr("timm.create_model", unreachable)
        libraries["timm"] = "resnet10t"
    for library, name in libraries.items():
        with pytest.raises(
            UserError, match=rf"cannot get the published weights .* from .*{name}.*: .*no internet"
        ) as error:
            load_reference(f"{library}:{name}", thousand, IMAGES)
        assert error.value.hint == f"give a file that is here: {library}:{name}:FILE.safetensors"
        with pytest.raises(UserError, match="know 1000 classes, the data have 10") as error:
            load_reference(f"{library}:{name}", digits, IMAGES)
        assert "fine-tune it on the data first" in str(error.value.hint)
