"""Networks on disk: round trips, and files that are not what they should be."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.data.images import image_input
from nas.deploy.onnx import Parity, check_parity, export_onnx
from nas.errors import UnknownNameError, UserError
from nas.files.tensors import save_tensors
from nas.networks.description import NetworkDescription, load_network, read_description, save_network, weights_path
from nas.runtimes.onnx_file import read_input
from nas.tasks.classification import top1_agreement
from search_spaces import load_search_space
from search_spaces.modules import set_norm_statistics


@pytest.fixture
def saved(tmp_path: Path) -> tuple[torch.nn.Module, NetworkDescription, Path]:
    torch.manual_seed(0)
    space = load_search_space("mixed").restrict("resolution", [32])
    arch = space.architecture(space.sample(1, np.random.default_rng(1))[0])
    description = NetworkDescription.of_architecture(space, arch, (4,))
    network = description.build()
    set_norm_statistics(network, torch.randn(8, 3, 32, 32))
    path = tmp_path / "model.network.json"
    save_network(network, description, path)
    return network.eval(), description, path


def test_round_trip_keeps_the_outputs(saved: tuple[torch.nn.Module, NetworkDescription, Path]) -> None:
    network, description, path = saved
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        expected = network(images)
        assert torch.equal(load_network(path, fold=False)(images), expected)
        assert torch.allclose(load_network(path)(images), expected, atol=1e-3)
    assert NetworkDescription.from_json(json.loads(path.read_text())) == description
    assert not list(path.parent.glob("*.partial"))


def test_zoo_networks_are_described_by_name(tmp_path: Path) -> None:
    description = NetworkDescription.of_baseline("resnet10_w50", (3,), image_input(32))
    save_network(description.build(), description, tmp_path / "zoo.network.json")
    with torch.no_grad():
        assert load_network(tmp_path / "zoo.network.json")(torch.randn(2, 3, 32, 32)).shape == (2, 3)
    with pytest.raises(UnknownNameError, match="resnet11"):
        NetworkDescription.of_baseline("resnet11", (3,), image_input(32)).build()


def test_truncated_and_foreign_files_are_named(saved: tuple[torch.nn.Module, NetworkDescription, Path]) -> None:
    _, _, path = saved
    weights = weights_path(path)
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        load_network(path)
    for old_format in (True, False):  # a pickle under a safetensors name
        torch.save({"a": torch.zeros(1)}, weights, _use_new_zipfile_serialization=not old_format)
        with pytest.raises(UserError, match="is a pickle"):
            load_network(path)
    weights.write_bytes(whole)
    path.write_text(json.dumps(read_description(path).resized((5,)).to_json()))
    with pytest.raises(UserError, match="another network: 2 tensors differ, the first is"):
        load_network(path)
    path.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        load_network(path)
    weights.unlink()
    with pytest.raises(UserError, match="does not exist"):
        load_network(path)


def test_one_changed_byte_of_a_fine_tuned_network_is_found_without_any_record_beside_it(
    saved: tuple[torch.nn.Module, NetworkDescription, Path],
) -> None:
    network, _, path = saved
    save_tensors(weights_path(path), network.state_dict(), {"val_accuracy": 0.9})
    load_network(path)
    content = weights_path(path).read_bytes()
    weights_path(path).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="was changed after it was written"):
        load_network(path)


@pytest.mark.parametrize(
    "document",
    [{}, [], {"zoo": "resnet18", "signature": {}}, {"zoo": "a", "architecture": {}}],
)
def test_other_documents_are_refused(document: object) -> None:
    with pytest.raises(UserError):
        NetworkDescription.from_json(document)


@pytest.mark.parametrize("batch", [1, 3])
def test_exported_network_computes_the_same(
    saved: tuple[torch.nn.Module, NetworkDescription, Path], tmp_path: Path, batch: int
) -> None:
    network, _, _ = saved
    path = export_onnx(network, image_input(32), tmp_path / "model.onnx", batch)
    assert read_input(path).shape == (batch, 3, 32, 32)
    images = np.random.default_rng(0).normal(size=(8, 3, 32, 32)).astype(np.float32)
    parity = check_parity(network, path, images, top1_agreement)
    assert parity.agreement == 1.0
    assert parity.mean_abs_difference < 1e-4
    assert Parity.from_json(parity.to_json()) == parity
    other = load_search_space("mixed").build(load_search_space("mixed").anchors[0], (4,))
    assert check_parity(other, path, np.ones((2, 3, 32, 32), np.float32), top1_agreement).max_abs_difference > 1e-3
